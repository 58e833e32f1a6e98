// ISB (Arm ARM, C6.2): flushes the pipeline, tens of cycles. The better PAUSE of arm64, where YIELD is a no-op on almost
// every core.
#if defined(__aarch64__)

#include "cpu/breath.h"
#include "cpu/relax.h"

namespace aiospin::cpu {

const Rung kIsbRung{"isb", never_refused, breathe_until<relax>};

}  // namespace aiospin::cpu

#endif
