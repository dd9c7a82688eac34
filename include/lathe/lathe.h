#pragma once

#include <memory>
#include <string>

#include "lathe/driver/build.h"
#include "lathe/driver/executable.h"
#include "lathe/frontend/onnx.h"

/// The simple API: a model from a file, compiled, run, saved.
///
///     lathe::Model model = lathe::Load("resnet50.onnx");
///     lathe::Executable exe = lathe::Compile(model, {.threads = 1});
///     lathe::NamedValues out = exe.Run({{"data", image}});       // tensors by name
///     exe.Run(inputs, outputs);                                  // in order; allocates nothing
///     exe.Save("resnet50.lx");
///     lathe::Executable again = lathe::Executable::Load("resnet50.lx");  // needs no compiler
///
/// Build (lathe/driver/build.h) makes a network that is written down as a Symbol into a graph, a
/// library and parameters. Tensor (lathe/support/tensor.h) is a value: row-major elements of one
/// type. Executable (lathe/driver/executable.h) is immutable; any number of threads may run one.
/// What a user does wrong throws lathe::Error (lathe/support/error.h); its Render() says where and
/// what to do.
namespace lathe {

/// What code is made for: Target::Host(), Target::Named("avx2"), Target::All().
using codegen::Target;

/// A program with its weights, as a file gives it. Movable.
class Model {
 public:
  /// Errors: those of LoadModel (lathe/driver/model_file.h).
  explicit Model(const std::string& path, const OnnxImportOptions& onnx = {});
  /// An ONNX model in memory, which is kept as long as its weights are used; `onnx.external` gives
  /// what it has outside. Errors: those of ImportOnnx (lathe/frontend/onnx.h).
  explicit Model(std::shared_ptr<Buffer> bytes, const OnnxImportOptions& onnx = {});
  /// A program built in code; its context must outlive the model and what is compiled from it.
  explicit Model(Program program);
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  /// To look at, change or optimize: see lathe/ir and lathe/pass.
  Program& program();
  const Program& program() const;

 private:
  friend Executable Compile(const Model& model, CompileOptions options);
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// An ONNX file (.onnx) or Lathe text (.lathe).
Model Load(const std::string& path, const OnnxImportOptions& onnx = {});
Model Load(std::shared_ptr<Buffer> bytes, const OnnxImportOptions& onnx = {});

/// Compiles for this machine unless told otherwise. The model is not changed and may go. Errors: as
/// Executable.
Executable Compile(const Model& model, CompileOptions options = {});

}  // namespace lathe
