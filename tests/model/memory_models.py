"""Three memory models as axioms on candidate executions: the language's (RC11), AArch64's and x86-TSO's.

RC11     Lahav, Vafeiadis, Kang, Hur, Dreyer, "Repairing Sequential Consistency in C/C++11", PLDI 2017, with C++20's
         release sequences (read-modify-writes only, which is the weaker reading) and data races on plain accesses.
AArch64  Deacon's aarch64.cat, in the form of Pulte, Flur, Deacon, French, Sarkar, Sewell, "Simplifying ARM
         Concurrency", POPL 2018: other-multi-copy-atomic, by the "ordered-before" relation. C becomes: acquire LDAPR,
         seq_cst loads LDAR, release and seq_cst stores STLR, read-modify-writes exclusives with A and L (weaker than
         the single instructions of LSE), fences DMB. Dependencies count only if asked for: compilers may remove them.
x86-TSO  Owens, Sarkar, Sewell, "A Better x86 Memory Model: x86-TSO", TPHOLs 2009, axiomatically. Orders of loads do not
         exist there; a seq_cst store is XCHG, every read-modify-write is locked.

Guarantee: each agrees with the published verdict on every test in litmus/classic (test_litmus.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from executions import Event, Execution, executions
from litmus import Litmus
from relations import Relation

ACQUIRES = ("acquire", "acq_rel", "seq_cst")
RELEASES = ("release", "acq_rel", "seq_cst")
MODELS = ("RC11", "AArch64", "x86-TSO")


def is_coherent(x: Execution) -> bool:
    """SC per place, and read-modify-writes are indivisible: what all models share."""
    if not ((x.po & x.same_place) | x.rf | x.co | x.fr).is_acyclic():
        return False
    return not x.rmw & ((x.fr & x.external) >> (x.co & x.external))


def _seq_cst(event: Event) -> bool:
    return event.order == "seq_cst"


def happens_before(x: Execution) -> Relation:
    """RC11's `hb`, the initial writes being before everything."""
    fence = x.on(lambda e: e.kind == "F")
    release = x.on(lambda e: e.order in RELEASES and e.kind in "WF")
    acquire = x.on(lambda e: e.order in ACQUIRES and e.kind in "RF")
    atomic_write = x.on(lambda e: e.kind == "W" and e.order != "plain")
    atomic_read = x.on(lambda e: e.kind == "R" and e.order != "plain")
    chain = (x.rf >> x.rmw).closure().optional()
    synchronizes = (
        release
        >> (fence >> x.po).optional()
        >> atomic_write
        >> chain
        >> x.rf
        >> atomic_read
        >> (x.po >> fence).optional()
        >> acquire
    )
    initially = x.pairs(lambda a, b: a.thread == -1 != b.thread)
    return (x.po | synchronizes | initially).closure()


def rc11(x: Execution) -> bool:
    """Coherence, atomicity, SC, no-thin-air."""
    if not is_coherent(x) or not (x.po | x.rf).is_acyclic():
        return False
    hb = happens_before(x)
    eco = (x.rf | x.co | x.fr).closure()
    if not (hb >> eco.optional()).is_irreflexive():
        return False
    elsewhere = x.po - x.same_place
    scb = x.po | (elsewhere >> hb >> elsewhere) | (hb & x.same_place) | x.co | x.fr
    sc = x.on(_seq_cst)
    sc_fence = x.on(lambda e: e.kind == "F" and _seq_cst(e))
    base = (sc | (sc_fence >> hb.optional())) >> scb >> (sc | (hb.optional() >> sc_fence))
    fences = sc_fence >> (hb | (hb >> eco >> hb)) >> sc_fence
    return (base | fences).is_acyclic()


def races(x: Execution) -> bool:
    """Whether two threads touch one place, one of them writing, one of them plainly, in no order."""
    hb = happens_before(x)
    conflict = x.pairs(
        lambda a, b: (
            a.location == b.location != ""
            and a.thread != b.thread
            and "W" in (a.kind, b.kind)
            and "plain" in (a.order, b.order)
            and -1 not in (a.thread, b.thread)
        )
    )
    return bool(conflict - hb - ~hb)


def aarch64(x: Execution, dependencies: bool = False) -> bool:
    """Internal visibility, external visibility, atomicity."""
    if not is_coherent(x):
        return False
    weak_acquire = x.on(lambda e: e.kind == "R" and e.order in ACQUIRES)  # A or Q
    strong_acquire = x.on(  # A: LDAR, and the load half of exclusives
        lambda e: e.kind == "R" and (e.order == "seq_cst" or (e.half and e.order in ACQUIRES))
    )
    release = x.on(lambda e: e.kind == "W" and e.order in RELEASES)  # L
    full = x.on(lambda e: e.kind == "F" and e.order != "acquire")
    loads = x.on(lambda e: e.kind == "F" and e.order == "acquire")
    rfi, coi = x.rf - x.external, x.co - x.external
    observed = (x.rf | x.fr | x.co) & x.external
    barriers = (
        (x.po >> full >> x.po)
        | (release >> x.po >> strong_acquire)
        | (x.reads >> x.po >> loads >> x.po)
        | (weak_acquire >> x.po)
        | (x.po >> release)
        | (x.po >> release >> coi)
    )
    ranges = x.on(lambda e: e.kind == "W" and e.half)
    atomics = x.rmw | (ranges >> rfi >> weak_acquire)
    ordered = observed | barriers | atomics
    if dependencies:
        data, control = x.dependencies("data"), x.dependencies("control")
        ordered = ordered | data | (control >> x.writes) | ((data | control) >> coi) | (data >> rfi)
    return ordered.is_acyclic()


def tso(x: Execution) -> bool:
    """Everything is in order, but that a load may overtake a store to another place."""
    if not is_coherent(x):
        return False
    locked = x.on(lambda e: e.half or (_seq_cst(e) and e.kind in "WF"))
    overtaken = x.writes >> x.po >> x.reads
    kept = (x.po - overtaken) | (x.po >> locked >> x.po) | (x.po >> locked) | (locked >> x.po)
    communicated = (x.rf & x.external) | x.co | x.fr
    return (kept | communicated).is_acyclic()


@dataclass(frozen=True)
class Verdict:
    """What one model says about one test."""

    executions: int  # those that the model allows
    reached: bool  # some of them ends as the condition says
    racy: bool  # some of them has a data race (RC11 only), which makes any end possible

    def holds(self, test: Litmus) -> bool:
        """Whether it is as the test expects."""
        return not (self.reached or self.racy) if test.forbidden else self.reached


def judge(test: Litmus, model: str, dependencies: bool = False) -> Verdict:
    """Enumerate the executions of `test` that `model` (one of MODELS) allows."""
    allowed, reached, racy = 0, False, False
    for x in executions(test):
        if not (rc11(x) if model == "RC11" else tso(x) if model == "x86-TSO" else aarch64(x, dependencies)):
            continue
        allowed += 1
        reached = reached or test.condition(x.final)
        racy = racy or (model == "RC11" and races(x))
    return Verdict(allowed, reached, racy)
