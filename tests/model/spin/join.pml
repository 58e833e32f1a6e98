/* A rank that leaves, is dropped, comes back and is confirmed, while the writer publishes; either is killed at any step.
 *
 *   reader                                       writer, for slot w
 *   joins: stay = the next even number           if w + 1 > limit: stay == gate and even:
 *          F += 1                                    limit = max(R, start) + CAPACITY, and wait for it
 *   gate == stay: n = max(R, start)                  else nobody gates: limit = w + 1
 *                 exchange R = n                 slot w; exchange W = w + 1
 *   W > n: look at slot n, twice                 F != rung: stay is even, and neither confirmed nor dropped:
 *          exchange R = n + 1                        start = w; gate = stay; limit = 0
 *   leaves: stay = the next odd number               ring; rung = F
 *   dropped (gate == stay | 1): joins             a successor does the same for start = W, whatever F is
 *                                                drops: gate = stay | 1; limit = 0; ring
 *
 * Claim: a slot holds what its place says for as long as a reader that was confirmed, and not dropped, may look at it;
 * no cursor moves backwards; and a rank that asked before a publish sleeps only with a byte in its bell, or confirmed.
 */
#ifndef LAST
#define LAST 4
#endif
#define CAPACITY 2
#ifndef STAYS
#define STAYS 2
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef DROPS
#define DROPS 1
#endif

#define W 0
#define R 1
#define F 2
#define STAY 3
#define GATE 4
#define START 5
#define SLOT(place) (6 + (place) % CAPACITY)
#define WORDS 8
#define WRITERS 2
#define STORES 3
#include "tso.inc"

#define WRITER 0
#define READER 1
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#ifdef M_LEFT_RANKS_GATE
#define GATES (LOAD(GATE) == (LOAD(STAY) & 254))
#else
#define GATES (LOAD(STAY) % 2 == 0 && LOAD(GATE) == LOAD(STAY))
#endif

bool killed[2], bell, asleep, over, away;
byte asked;  /* ghost: W when the reader asked to join */
byte drops;

#define DROPPED (LOAD(GATE) == (LOAD(STAY) | 1))

active [2] proctype kill() {
  byte left = KILLS;
end:
  do
  :: d_step { left > 0 && !killed[_pid - 1] -> killed[_pid - 1] = true; left-- }
  od
}

inline listen(before) {
  stay = LOAD(STAY);
  if
  :: stay % 2 == 0 && LOAD(GATE) != stay && LOAD(GATE) != (stay | 1) ->
#ifdef M_GATE_BEFORE_START
    EXCHANGE(WRITER, GATE, stay);
    STORE(WRITER, START, before);
#else
#ifdef M_STARTS_WHERE_IT_WAS
    STORE(WRITER, START, LOAD(R));
#else
    STORE(WRITER, START, before);
#endif
    EXCHANGE(WRITER, GATE, stay);
#endif
    limit = 0
  :: else
  fi;
  stay = 0;
  bell = true
}

active proctype writer() {
  byte w, limit, rung, stay, e;
claim:
  true;
  d_step { killed[WRITER] = false; w = 0; limit = 0; rung = 0; stay = 0; e = 0 }
  {
    SETTLED(WRITER);
    w = LOAD(W);
    e = LOAD(F);
#ifndef M_ATTACH_SILENT
    listen(w);
#endif
    rung = e;
    do
    :: w == LAST -> break
    :: w < LAST ->
      do
      :: w + 1 <= limit -> break
      :: else ->
        if
        :: GATES -> d_step { limit = MAX(LOAD(R), LOAD(START)) + CAPACITY }
          if
          :: w + 1 > limit -> (!GATES || w + 1 <= MAX(LOAD(R), LOAD(START)) + CAPACITY)
          :: else
          fi
        :: else -> limit = w + 1
        fi
      od;
      STORE(WRITER, SLOT(w), w + 1);
      EXCHANGE(WRITER, W, w + 1);
      w++;
      e = LOAD(F);
      if
      :: e != rung -> listen(w - 1); rung = e
      :: else
      fi;
      if
      :: d_step { drops < DROPS && LOAD(STAY) % 2 == 0 -> stay = LOAD(STAY) | 1; drops++ }
        EXCHANGE(WRITER, GATE, stay);
        d_step { stay = 0; limit = 0; bell = true }
      :: true
      fi
    od;
    over = true
  } unless { killed[WRITER] && !over -> goto claim }
}

inline announce() { d_step { empty(buffer[READER]) -> memory[F] = memory[F] + 1 } }
inline ask() { d_step { empty(buffer[READER]) -> memory[F] = memory[F] + 1; asked = memory[W] } }

active proctype reader() {
  byte n, stays;
  bool joining;
claim:
  true;
  d_step { killed[READER] = false; joining = false; n = 0; asleep = false }
  {
    SETTLED(READER);
come:
    if
    :: GATES -> n = MAX(LOAD(R), LOAD(START))
    :: else ->
      joining = true;
      if
      :: LOAD(STAY) % 2 == 1 || DROPPED ->
#ifdef M_SAME_STAY_AGAIN
        EXCHANGE(READER, STAY, (LOAD(STAY) % 2 == 1 -> LOAD(STAY) - 1 : LOAD(STAY) + 2));
#else
        EXCHANGE(READER, STAY, (LOAD(STAY) | 1) + 1);
#endif
      :: else
      fi;
#ifndef M_JOINS_SILENTLY
      ask()
#endif
    fi;
    do
    :: GATES && joining ->
#ifdef M_START_ALONE
      n = LOAD(START);
#else
      n = MAX(LOAD(R), LOAD(START));
#endif
      assert(n >= LOAD(R));
      EXCHANGE(READER, R, n);
      joining = false
    :: GATES && !joining && LOAD(W) > n ->
      assert(LOAD(SLOT(n)) == n + 1 || DROPPED);
      assert(LOAD(SLOT(n)) == n + 1 || DROPPED);
      EXCHANGE(READER, R, n + 1);
      n++
    :: DROPPED -> joining = false; goto come
    :: !joining && stays < STAYS ->
      d_step { empty(buffer[READER]) -> memory[STAY] = memory[STAY] | 1; stays++ }
      if
      :: goto come
      :: away = true; break
      fi
    :: !GATES && !DROPPED && joining ->
#ifndef M_JOINS_SILENTLY
      announce();
#endif
      if
      :: GATES || DROPPED
      :: else -> asleep = true;
end_asleep:
        bell -> d_step { bell = false; asleep = false }
      fi
    :: GATES && !joining && over && LOAD(W) == n -> break
    od
  } unless { killed[READER] && !away -> goto claim }
}

/* Asked before the last publish, and nobody will ever ring. */
active proctype judge() {
end:
  d_step { over && asleep && !bell -> assert(asked >= LOAD(W) || GATES || DROPPED) }
}
