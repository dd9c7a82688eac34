#include "lathe/dialect/all.h"
#include "lathe/driver/model_file.h"
#include "lathe/ir/context.h"
#include "lathe/ir/verify.h"
#include "lathe/lathe.h"

namespace lathe {
namespace {

std::unique_ptr<IrContext> NewContext() {
  auto context = std::make_unique<IrContext>();
  LoadAllDialects(*context);
  return context;
}

}  // namespace

struct Model::Impl {
  Impl(const std::string& path, const OnnxImportOptions& onnx)
      : context(NewContext()), program(LoadModel(*context, path, onnx)) {
    VerifyLoaded(program, path);
  }
  Impl(std::shared_ptr<Buffer> bytes, const OnnxImportOptions& onnx)
      : context(NewContext()),
        program(ImportOnnx(*context, std::move(bytes), "model in memory", "", onnx)) {
    VerifyOrThrow(program);
  }
  explicit Impl(Program p) : program(std::move(p)) {}

  std::unique_ptr<IrContext> context;  // null: somebody else's
  Program program;
};

Model::Model(const std::string& path, const OnnxImportOptions& onnx)
    : impl_(std::make_shared<Impl>(path, onnx)) {}
Model::Model(std::shared_ptr<Buffer> bytes, const OnnxImportOptions& onnx)
    : impl_(std::make_shared<Impl>(std::move(bytes), onnx)) {}
Model::Model(Program program) : impl_(std::make_shared<Impl>(std::move(program))) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Program& Model::program() { return impl_->program; }
const Program& Model::program() const { return impl_->program; }

Model Load(const std::string& path, const OnnxImportOptions& onnx) { return Model(path, onnx); }
Model Load(std::shared_ptr<Buffer> bytes, const OnnxImportOptions& onnx) {
  return Model(std::move(bytes), onnx);
}

Executable Compile(const Model& model, CompileOptions options) {
  return Executable(model.program(), std::move(options), model.impl_);
}

}  // namespace lathe
