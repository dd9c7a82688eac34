#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lathe {

class IrContext;

/// Where an operation comes from: a file position, a name (an ONNX node), or a fusion of several.
/// Eight bytes, passed by value. File positions are packed into the handle; names and fusions are
/// uniqued in the context, which must outlive the handle.
class Location {
 public:
  constexpr Location() = default;
  static Location FileLineCol(IrContext& context, std::string_view file, uint32_t line,
                              uint32_t column);
  static Location Name(IrContext& context, std::string_view name);
  /// The union of `parts`: flattened, without repeats or unknowns, in order of first appearance.
  static Location Fused(IrContext& context, std::span<const Location> parts);

  /// A context-wide number of `file` for the quick overload below.
  static uint32_t FileId(IrContext& context, std::string_view file);
  static Location FileLineCol(IrContext& context, uint32_t file_id, uint32_t line, uint32_t column);

  bool operator==(const Location&) const = default;
  bool is_unknown() const { return bits_ == 0; }
  bool is_file() const;
  bool is_name() const;
  bool is_fused() const;

  // Valid for the matching kind only.
  std::string_view file(IrContext& context) const;
  uint32_t line() const;
  uint32_t column() const;
  std::string_view name() const;
  std::span<const Location> parts() const;

  /// `model.lathe:3:5`, `'conv1'`, `fused('conv1', 'relu1')`, `unknown`: for messages.
  std::string ToString(IrContext& context) const;
  uint64_t bits() const { return bits_; }

 private:
  explicit constexpr Location(uint64_t bits) : bits_(bits) {}
  uint64_t bits_ = 0;
};

}  // namespace lathe
