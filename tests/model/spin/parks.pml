/* Who raises a reader's park epoch: its loop, which parks at once, and the waiter thread, at the end of a horizon. Both
 * belong to one process and may do it at the same time (a loop can be asked to arm the bell while the thread watches).
 *
 *   loop                                         waiter thread, holding its lock
 *   attempt: W > n: n += 1                       W > n: push the token, forget the watch
 *   either hand the watch to the thread          the horizon is over:
 *   or F += 1; W > n: attempt                       F += 1; W > n: push the token
 *   sleep on the bell and on the eventfd            forget the watch either way
 *
 *   writer: exchange W; e = F; if e != rung: ring, rung = e
 *
 * Claim: the loop never sleeps on with a message there. Both add 1 in one indivisible step.
 */
#define LAST 4
#define W 0
#define F 1
#define WORDS 2
#define WRITERS 2
#define STORES 1
#include "tso.inc"

#define WRITER 0
#define WAITER 1

bool bell, event, watched, lock;
byte n;

active proctype writer() {
  byte w, e, rung;
  do
  :: w == LAST -> break
  :: w < LAST ->
    EXCHANGE(WRITER, W, w + 1);
    w++;
    e = LOAD(F);
    if
    :: e != rung -> bell = true; rung = e
    :: else
    fi
  od
}

active proctype waiter() {
  byte f;
end:
  do
  :: d_step { watched && !lock -> lock = true }
    if
    :: LOAD(W) > n -> event = true; watched = false
    :: true ->  /* the horizon is over */
#ifndef M_THREAD_FORGETS_SILENTLY
#ifdef M_LOAD_AND_STORE
      f = LOAD(F);
      EXCHANGE(WAITER, F, f + 1);
      f = 0;
#else
#ifdef M_PLAIN_STORE
      d_step { f = LOAD(F); STORE(WAITER, F, f + 1); f = 0 }
#else
      d_step { empty(buffer[WAITER]) -> memory[F] = memory[F] + 1 }
#endif
#endif
#endif
      if
#ifndef M_THREAD_NO_SECOND_LOOK
#ifdef M_ANSWER_FORGOTTEN
      :: LOAD(W) > n -> skip
#else
      :: LOAD(W) > n -> event = true
#endif
      :: else
#else
      :: true
#endif
      fi;
      watched = false
    fi;
    lock = false
  od
}

active proctype loop() {
  bool parked;
  do
  :: n == LAST -> break
  :: n < LAST ->
    if
    :: LOAD(W) > n -> n++
    :: else ->
      parked = false;
      if
      :: d_step { !lock -> watched = true }  /* an old watch cancelled, a new one handed over */
        if
        :: true
        :: parked = true  /* armed as well */
        fi
      :: parked = true
      fi;
      if
      :: parked ->
        d_step { memory[F] = memory[F] + 1 }
        if
#ifndef M_LOOP_NO_SECOND_LOOK
        :: LOAD(W) > n -> goto again
        :: else
#else
        :: true
#endif
        fi
      :: else
      fi;
sleep:
      if
#ifdef M_BELL_NOT_IN_LOOP
      :: bell && parked -> bell = false
#else
      :: bell -> bell = false
#endif
      :: event -> event = false
      fi;
again:
      if
      :: d_step { !lock -> watched = false }  /* cancelled, as an operation that ends does */
      :: watched -> skip                      /* or it goes on, the arming having been another's */
      fi;
      parked = false
    fi
  od
}
