/* Tokens from two threads to one loop, behind an eventfd that is written once for many of them.
 *
 *   push: append the token (locked)              loop: sleep until the eventfd has a count
 *         exchange pending = true                      drain it
 *         it was false: write the eventfd              exchange pending = false
 *                                                      take all tokens (locked)
 *
 * The lock orders what the language says: what comes after it stays after it, what comes before it may come later. On
 * x86 it happens to be a full barrier as well.
 *
 * Claim: the loop gets every token.
 */
#define EACH 2
#define PENDING 0
#define WORDS 1
#define WRITERS 1
#define STORES 1
#include "tso.inc"

#define LOOP 0
byte tokens, taken;
bool event;

inline mark() {
  d_step { was = LOAD(PENDING); memory[PENDING] = 1 }
  if
  :: was == 0 -> event = true
  :: else
  fi
}

active [2] proctype pusher() {
  byte pushed, was;
  do
  :: pushed == EACH -> break
  :: pushed < EACH ->
#ifdef M_FLAG_BEFORE_TOKEN
    mark();
    tokens++;
#else
    tokens++;
    mark();
#endif
    d_step { pushed++; was = 0 }
  od
}

inline take() { d_step { taken = taken + tokens; tokens = 0 } }

active proctype loop() {
  do
  :: taken == 2 * EACH -> break
  :: taken < 2 * EACH ->
    event;
#ifdef M_DRAINED_LAST
    EXCHANGE(LOOP, PENDING, 0);
    take();
    event = false
#else
#ifdef M_DRAINED_AFTER_FLAG
    EXCHANGE(LOOP, PENDING, 0);
    event = false;
    take()
#else
    event = false;
#ifdef M_POPPED_BEFORE_FLAG
    take();
    EXCHANGE(LOOP, PENDING, 0)
#else
#ifdef M_PLAIN_STORE
    STORE(LOOP, PENDING, 0);
    take()
#else
#ifndef M_FLAG_NEVER_CLEARED
    EXCHANGE(LOOP, PENDING, 0);
#endif
    take()
#endif
#endif
#endif
#endif
  od
}
