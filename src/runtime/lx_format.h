#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lathe/runtime/lx_file.h"

/// The bytes of .lx files, as lathe/runtime/lx_file.h tells.
namespace lathe::runtime::lx {

inline constexpr char kMagic[8] = {'L', 'A', 'T', 'H', 'E', '-', 'L', 'X'};
inline constexpr uint64_t kAlignment = 64;
inline constexpr uint64_t kPage = 4096;

enum class Kind : uint32_t { kPlan = 1, kCode = 2, kConstants = 3 };

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t num_sections;
  uint64_t file_bytes;
  uint64_t checksum;
  uint64_t zeros[4];
};
static_assert(sizeof(Header) == 64);

struct Section {
  Kind kind;
  uint32_t zero;
  uint64_t offset;
  uint64_t bytes;
  uint64_t checksum;  ///< 0 for kConstants, each of which has its own
};
static_assert(sizeof(Section) == 32);

/// A constant as the plan section has it.
struct Constant {
  std::string name;
  ElementType element = ElementType::kUndefined;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  ///< in the section of constants
  uint64_t checksum = 0;
};

uint64_t HeaderChecksum(Header header, const std::vector<Section>& sections);

/// The plan but for its code and constants, which `constants` stands for.
std::string EncodePlan(const Plan& plan, const std::vector<Constant>& constants);
/// Throws lx/plan.
void DecodePlan(const std::byte* data, uint64_t bytes, Plan& plan,
                std::vector<Constant>& constants);

}  // namespace lathe::runtime::lx
