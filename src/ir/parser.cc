#include "lathe/support/buffer.h"
#include "lathe/support/file.h"
#include "src/ir/program_parser.h"

namespace lathe {

Program ParseProgram(IrContext& context, std::string_view text, const ParseOptions& options) {
  return ProgramParser(context, text, options).Run();
}

Program ParseProgramFile(IrContext& context, const std::string& path) {
  ParseOptions options;
  options.file_name = path;
  if (path == "-") {
    options.file_name = "<stdin>";
    return ParseProgram(context, ReadFile(path), options);
  }
  const auto buffer = Buffer::MapFile(path);
  return ParseProgram(context, {reinterpret_cast<const char*>(buffer->data()), buffer->size()},
                      options);
}

namespace {
template <class Fn>
auto ParseWhole(IrContext& context, std::string_view text, Fn&& fn) {
  const ParseOptions options;
  TextParser parser(context, text, options);
  auto result = fn(parser);
  parser.ExpectEnd();
  return result;
}
}  // namespace

Type ParseType(IrContext& context, std::string_view text) {
  return ParseWhole(context, text, [](TextParser& p) { return p.ParseType(); });
}

Attribute ParseAttribute(IrContext& context, std::string_view text) {
  return ParseWhole(context, text, [](TextParser& p) { return p.ParseAttribute(); });
}

}  // namespace lathe
