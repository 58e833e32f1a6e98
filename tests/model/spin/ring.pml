/* Publish, acquire, release, and the journal through which a successor of the writer goes on. Any process is killed at
 * any step, KILLS times each, and replaced.
 *
 *   claim: the entry whose cursor is W          reader: W > n: look at slot n, twice
 *   room: R + CAPACITY > w                              exchange R = n + 1
 *   slot w = its number                                 a successor begins at R
 *   the entry in turn: void, number, cursor
 *   exchange W = w + 1
 *
 * Claim: every slot holds the number that its place in the stream says, as long as a reader may look at it; none is
 * passed over; and whenever a writer dies some entry agrees with W.
 */
#define LAST 4
#define CAPACITY 2
#ifndef KILLS
#define KILLS 2
#endif

#define NONE 255
#define W 0
#define R 1
#define CURSOR(entry) (2 + 2 * (entry))
#define NUMBER(entry) (3 + 2 * (entry))
#define SLOT(place) (6 + (place) % CAPACITY)
#define WORDS 8
#define WRITERS 2
#define STORES 4
#include "tso.inc"

#define WRITER 0
#define READER 1
bool killed[2];
byte delivered;  /* ghost: how many slots were looked at in full */

active [2] proctype kill() {
  byte left = KILLS;
end:
  do
  :: d_step { left > 0 && !killed[_pid - 1] -> killed[_pid - 1] = true; left-- }
  od
}

inline journal(entry) {
  STORE(WRITER, CURSOR(entry), NONE);
#ifdef M_CURSOR_ALONE
  skip;  /* the number is not written */
#else
  STORE(WRITER, NUMBER(entry), number + 1);
#endif
  STORE(WRITER, CURSOR(entry), w + 1)
}

active proctype writer() {
  byte w, number, entry;
claim:
  true;
  d_step { killed[WRITER] = false; w = 0; number = 0; entry = 0 }
  {
    SETTLED(WRITER);
    w = LOAD(W);
#ifdef M_LATEST_ENTRY  /* the entry that goes furthest */
    entry = (LOAD(CURSOR(0)) != NONE && (LOAD(CURSOR(1)) == NONE || LOAD(CURSOR(0)) >= LOAD(CURSOR(1))) -> 0 : 1);
#else
    entry = (LOAD(CURSOR(0)) == w -> 0 : 1);
    assert(LOAD(CURSOR(entry)) == w);
#endif
    number = LOAD(NUMBER(entry));
#ifdef M_TURN_FORGOTTEN  /* a successor begins with the first entry, whichever it has read */
    entry = 0;
#else
    entry = 1 - entry;
#endif
    do
    :: w == LAST -> break
    :: w < LAST ->
#ifdef M_ROOM_COUNTED_ONE_TOO_MANY
      LOAD(R) + CAPACITY >= w;
#else
      LOAD(R) + CAPACITY > w;
#endif
#ifdef M_PUBLISHED_BEFORE_BYTES
      journal(entry);
      EXCHANGE(WRITER, W, w + 1);
      STORE(WRITER, SLOT(w), number + 1);
#else
      STORE(WRITER, SLOT(w), number + 1);
#ifdef M_JOURNAL_AFTER
      EXCHANGE(WRITER, W, w + 1);
      journal(entry);
#else
      journal(entry);
      EXCHANGE(WRITER, W, w + 1);
#endif
#endif
      d_step {
        w++; number++;
#ifndef M_ONE_ENTRY
        entry = 1 - entry;
#endif
      }
    od
  } unless { killed[WRITER] -> goto claim }
}

active proctype reader() {
  byte n;
claim:
  true;
  d_step { killed[READER] = false; n = 0 }
  {
    SETTLED(READER);
#ifdef M_SUCCESSOR_AT_PUBLISHED
    n = (delivered == 0 -> 0 : LOAD(W));
#else
    n = LOAD(R);
#endif
    do
    :: n == LAST -> break
    :: n < LAST ->
      LOAD(W) > n;
      assert(n <= delivered);
#ifdef M_RELEASED_BEFORE_READ
      EXCHANGE(READER, R, n + 1);
#endif
      assert(LOAD(SLOT(n)) == n + 1);
      d_step { assert(LOAD(SLOT(n)) == n + 1); delivered = (delivered > n -> delivered : n + 1) }
#ifndef M_RELEASED_BEFORE_READ
      EXCHANGE(READER, R, n + 1);
#endif
      n++
    od
  } unless { killed[READER] -> goto claim }
}
