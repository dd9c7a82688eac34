#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lathe/support/buffer.h"
#include "src/frontend/onnx/messages.h"

namespace lathe::onnx {

/// Where the bytes of an external tensor lie: the entries of TensorProto.external_data.
struct ExternalRange {
  std::string location;
  uint64_t offset = 0;
  uint64_t length = Buffer::kToEnd;
};

/// Reads the entries. Errors: onnx/external-data (missing location, malformed or repeated keys).
ExternalRange ReadExternalRange(const std::vector<TextPair>& entries);

/// Contents by location: what a caller gives instead of files.
using ExternalSource = std::function<std::shared_ptr<Buffer>(const std::string&)>;

/// Maps data files that belong to a model. Nothing outside the model's folder is ever opened: each
/// component of a name is opened below the one before it without following links, and what is
/// checked (a regular file with one name, long enough) is the opened file itself, not its path.
class ExternalFiles {
 public:
  /// `folder` empty: there is none, every use is an error (models given as bytes). With a `source`
  /// no file is opened.
  explicit ExternalFiles(std::string folder, ExternalSource source = nullptr)
      : folder_(std::move(folder)), source_(std::move(source)) {}

  /// The whole file, mapped once. Errors: onnx/external-path, onnx/external-file.
  std::shared_ptr<Buffer> Map(const std::string& location);

 private:
  std::shared_ptr<Buffer> Given(const std::string& location) const;

  std::string folder_;
  ExternalSource source_;
  std::map<std::string, std::shared_ptr<Buffer>> mapped_;
};

}  // namespace lathe::onnx
