// A plug-in of an earlier version, which must not be called.
#include <cstdlib>

namespace lathe {
class IrContext;
}

extern "C" {
extern const char LathePluginVersion[];
const char LathePluginVersion[] = "0.0.9";
void LathePlugin(lathe::IrContext&);
void LathePlugin(lathe::IrContext&) { std::abort(); }
}
