// A plug-in that does not say for which version it was made, and must not be called.
#include <cstdlib>

namespace lathe {
class IrContext;
}

extern "C" {
void LathePlugin(lathe::IrContext&);
void LathePlugin(lathe::IrContext&) { std::abort(); }
}
