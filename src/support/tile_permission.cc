#include "lathe/support/tile_permission.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#endif

namespace lathe {
namespace {

#if defined(__x86_64__) && defined(__linux__)
constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
constexpr uint64_t kTileState = 3U << 17;    // XTILECFG and XTILEDATA

// Whether the system saves the tile registers when it switches processes.
bool SystemSavesTiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_OSXSAVE) == 0) return false;
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileState) == kTileState;
}

bool ProcessorHasTiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTile = 1U << 24;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kTile) != 0;
}

bool Ask() {
  return ProcessorHasTiles() && SystemSavesTiles() &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#else
bool Ask() { return false; }
#endif

}  // namespace

bool MayUseTiles() {
  static const bool may = Ask();
  return may;
}

}  // namespace lathe
