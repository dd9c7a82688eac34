#pragma once

namespace lathe {

/// Whether the processor has tile registers (AMX) and the system lets this process use them. Asks
/// it to, once: Linux gives the memory for them only to processes that ask.
bool MayUseTiles();

}  // namespace lathe
