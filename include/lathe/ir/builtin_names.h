#pragma once

namespace lathe {

/// Names of the ops of the dialect `builtin` that the language itself knows: the structure of a
/// program. Layers above `pass` take all names from `lathe/dialect/<dialect>/op_names.h`.
inline constexpr const char* kModuleOp = "builtin.module";
inline constexpr const char* kFuncOp = "builtin.func";
inline constexpr const char* kCallOp = "builtin.call";
inline constexpr const char* kReturnOp = "builtin.return";
inline constexpr const char* kConstantOp = "builtin.constant";
inline constexpr const char* kGetParameterOp = "builtin.get_parameter";
inline constexpr const char* kSetParameterOp = "builtin.set_parameter";
inline constexpr const char* kTokenOfOp = "builtin.token_of";
inline constexpr const char* kDependOp = "builtin.depend";
inline constexpr const char* kEmptyOp = "builtin.empty";

}  // namespace lathe
