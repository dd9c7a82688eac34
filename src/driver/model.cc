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
  explicit Impl(const std::string& path)
      : context(NewContext()), program(LoadModel(*context, path)) {
    VerifyOrThrow(program);
  }
  explicit Impl(Program p) : program(std::move(p)) {}

  std::unique_ptr<IrContext> context;  // null: somebody else's
  Program program;
};

Model::Model(const std::string& path) : impl_(std::make_shared<Impl>(path)) {}
Model::Model(Program program) : impl_(std::make_shared<Impl>(std::move(program))) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Program& Model::program() { return impl_->program; }
const Program& Model::program() const { return impl_->program; }

Model Load(const std::string& path) { return Model(path); }

Executable Compile(const Model& model, CompileOptions options) {
  return Executable(model.program(), std::move(options), model.impl_);
}

}  // namespace lathe
