#include <algorithm>
#include <array>
#include <new>

#include "lathe/runtime/artifacts.h"
#include "lathe/runtime/lx_file.h"
#include "lathe/support/error.h"
#include "lathe/support/file.h"
#include "lathe/support/version.h"
#include "src/runtime/arguments.h"
#include "src/runtime/c_program.h"

using lathe::Buffer;
using lathe::ElementType;
using lathe::Error;
using lathe::ErrorCode;
using lathe::StrCat;
using lathe::runtime::CancelToken;
using lathe::runtime::Executor;
using lathe::runtime::ExecutorOptions;
using lathe::runtime::Expect;
using lathe::runtime::Guarded;
using lathe::runtime::InputView;
using lathe::runtime::OutputView;
using lathe::runtime::Plan;
using lathe::runtime::PlanPort;
using lathe::runtime::PlanValue;
using lathe::runtime::Profile;
using lathe::runtime::RunOptions;
using lathe::runtime::WorkerTeam;

struct lathe_error {
  lathe_code code;
  std::string id, message, text;
};

struct lathe_cancel {
  CancelToken token;
};

struct lathe_thread_pool {
  std::shared_ptr<WorkerTeam> team;
};

struct lathe_profile {
  Profile profile;
};

namespace {

// What lathe_port points to.
struct Port {
  std::vector<std::string> texts;
  std::vector<lathe_dim> dims;
  std::string type;
  lathe_port port;
};

// `name` outlives it.
void Fill(Port& port, const std::string& name, const PlanValue& of) {
  const std::vector<lathe::Dim>& dims = of.dims;
  port.type = lathe::runtime::TypeOf(of);
  for (const lathe::Dim& dim : dims) port.texts.push_back(dim.ToString());
  for (size_t a = 0; a < dims.size(); ++a) {
    const int64_t value = dims[a].is_constant() ? dims[a].value() : -1;
    port.dims.push_back({value, port.texts[a].c_str()});
  }
  port.port = {name.c_str(), static_cast<lathe_element>(of.element), port.dims.size(),
               port.dims.data(), port.type.c_str()};
}

std::vector<Port> PortsOf(const Plan& plan, const std::vector<PlanPort>& from) {
  std::vector<Port> ports(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    Fill(ports[i], from[i].name, plan.values[from[i].value]);
  }
  return ports;
}

// Sorted by name.
std::vector<Port> ParametersOf(const Plan& plan) {
  std::vector<uint32_t> constants;
  for (const auto& variable : plan.variables) constants.push_back(variable.initial);
  std::ranges::sort(constants, {}, [&](uint32_t c) { return plan.constant_names[c]; });
  std::vector<Port> ports(constants.size());
  for (size_t i = 0; i < constants.size(); ++i) {
    const lathe::Tensor& initial = plan.constants[constants[i]];
    PlanValue value;
    value.element = initial.element_type();
    value.dims.assign(initial.shape().begin(), initial.shape().end());
    Fill(ports[i], plan.constant_names[constants[i]], value);
  }
  return ports;
}

lathe_code CodeOf(const Error& error) {
  if (error.id() == "run/cancelled") return LATHE_CANCELLED;
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
      return LATHE_INVALID_ARGUMENT;
    case ErrorCode::kNotFound:
      return LATHE_NOT_FOUND;
    case ErrorCode::kUnsupported:
      return LATHE_UNSUPPORTED;
    case ErrorCode::kParse:
    case ErrorCode::kVerify:
      return LATHE_DAMAGED;
    case ErrorCode::kShape:
      return LATHE_SHAPE;
    case ErrorCode::kType:
      return LATHE_TYPE;
    case ErrorCode::kIo:
      return LATHE_IO;
    case ErrorCode::kLimit:
      return LATHE_LIMIT;
    default:
      return LATHE_INTERNAL;
  }
}

// There when there is no memory for another one.
const lathe_error kOutOfMemory = {LATHE_LIMIT, "limit/memory", "there is no memory",
                                  "error[limit/memory]: there is no memory\n"};

const char* TextOf(const lathe_error* error, std::string lathe_error::* text) {
  return error == nullptr ? "" : (error->*text).c_str();
}

ElementType ElementOf(lathe_element element) {
  const int number = element;  // of a C caller, who may give any
  const bool known = number > 0 && number < 256;
  return known ? static_cast<ElementType>(element) : ElementType::kUndefined;
}

// A few in place, so that a run need not allocate.
template <class T>
class FewOrMany {
 public:
  explicit FewOrMany(size_t count) : count_(count) {
    if (count > few_.size()) many_.resize(count);
  }
  T& operator[](size_t i) { return many_.empty() ? few_[i] : many_[i]; }
  operator std::span<const T>() const {  // NOLINT: implicit
    return {many_.empty() ? few_.data() : many_.data(), count_};
  }

 private:
  size_t count_;
  std::array<T, 16> few_;
  std::vector<T> many_;
};

void Convert(const lathe_input_view* inputs, size_t count, FewOrMany<InputView>& views) {
  Expect(inputs != nullptr || count == 0, "the inputs are NULL");
  for (size_t i = 0; i < count; ++i) {
    Expect(inputs[i].shape != nullptr || inputs[i].rank == 0, "the shape of an input is NULL");
    views[i] = {ElementOf(inputs[i].element), inputs[i].data, {inputs[i].shape, inputs[i].rank}};
  }
}

RunOptions OptionsOf(const lathe_run_options* given) {
  const auto options = lathe::runtime::Complete(given, offsetof(lathe_run_options, timeout_seconds),
                                                "lathe_run_options.size is not set");
  return {.cancel = lathe::runtime::TokenOf(options.cancel),
          .timeout_seconds = options.timeout_seconds,
          .profile = options.profile == nullptr ? nullptr : &options.profile->profile};
}

ExecutorOptions OptionsOf(const lathe_load_options* given) {
  const auto options = lathe::runtime::Complete(given, offsetof(lathe_load_options, pool),
                                                "lathe_load_options.size is not set");
  Expect(options.threads >= 0, "lathe_load_options.threads is negative");
  return {.threads = options.threads,
          .team = lathe::runtime::TeamOf(options.pool),
          .max_bytes = options.max_bytes,
          .allocate = lathe::runtime::AllocateBy(options.allocator)};
}

// Memory of a caller, which gets it back.
std::shared_ptr<Buffer> MemoryOf(const lathe_allocator& allocator, uint64_t bytes) {
  void* memory = allocator.allocate(allocator.user, bytes);
  if (memory == nullptr) {
    throw Error(ErrorCode::kLimit, "limit/memory",
                StrCat("the allocator has no ", lathe::HumanBytes(bytes), " for tensors"));
  }
  const auto release = [allocator, bytes](void* m) { allocator.release(allocator.user, m, bytes); };
  const std::shared_ptr<void> owned(memory, release);
  Expect(reinterpret_cast<uintptr_t>(memory) % Buffer::kAlignment == 0,
         "the allocator's memory is not aligned to 64 bytes");
  return Buffer::WrapWritable(memory, bytes, owned);
}

}  // namespace

struct lathe_program {
  explicit lathe_program(std::shared_ptr<const Executor> e)
      : executor(std::move(e)),
        inputs(PortsOf(executor->plan(), executor->plan().inputs)),
        outputs(PortsOf(executor->plan(), executor->plan().outputs)),
        parameters(ParametersOf(executor->plan())) {}
  explicit lathe_program(Executor e)
      : lathe_program(std::make_shared<const Executor>(std::move(e))) {}

  std::shared_ptr<const Executor> executor;
  std::vector<Port> inputs, outputs, parameters;
};

namespace lathe::runtime {

lathe_program* NewProgram(std::shared_ptr<const Executor> executor) {
  return new lathe_program(std::move(executor));
}

const CancelToken* TokenOf(const lathe_cancel* cancel) {
  return cancel == nullptr ? nullptr : &cancel->token;
}

std::shared_ptr<WorkerTeam> TeamOf(const lathe_thread_pool* pool) {
  return pool == nullptr ? nullptr : pool->team;
}

decltype(ExecutorOptions::allocate) AllocateBy(const lathe_allocator* allocator) {
  if (allocator == nullptr) return {};
  Expect(allocator->allocate != nullptr && allocator->release != nullptr,
         "a function of the allocator is NULL");
  return [copy = *allocator](uint64_t bytes) { return MemoryOf(copy, bytes); };
}

lathe_error* NewError(const Error& error) {
  return new lathe_error{CodeOf(error), error.id(), error.message(), error.Render()};
}

lathe_error* OutOfMemoryError() { return const_cast<lathe_error*>(&kOutOfMemory); }

void Expect(bool condition, const char* message) {
  if (!condition) throw Error(ErrorCode::kInvalidArgument, "run/argument", message);
}

}  // namespace lathe::runtime

namespace {
void ExpectProgram(const lathe_program* program) {
  Expect(program != nullptr, "the program is NULL");
}
}  // namespace

extern "C" {

lathe_code lathe_error_code(const lathe_error* error) {
  return error == nullptr ? lathe_code{} : error->code;
}
const char* lathe_error_id(const lathe_error* error) { return TextOf(error, &lathe_error::id); }
const char* lathe_error_message(const lathe_error* error) {
  return TextOf(error, &lathe_error::message);
}
const char* lathe_error_text(const lathe_error* error) { return TextOf(error, &lathe_error::text); }
void lathe_error_free(lathe_error* error) {
  if (error != &kOutOfMemory) delete error;
}

const char* lathe_runtime_version(void) { return lathe::Version().data(); }

lathe_error* lathe_thread_pool_new(int32_t threads, lathe_thread_pool** pool) {
  return Guarded([&] {
    Expect(pool != nullptr, "an argument is NULL");
    *pool = nullptr;
    *pool = new lathe_thread_pool{std::make_shared<WorkerTeam>(threads)};
  });
}
void lathe_thread_pool_free(lathe_thread_pool* pool) { delete pool; }

lathe_error* lathe_load_file(const char* path, const lathe_load_options* options,
                             lathe_program** program) {
  return Guarded([&] {
    Expect(path != nullptr && program != nullptr, "an argument is NULL");
    *program = nullptr;
    *program = new lathe_program(lathe::runtime::LoadExecutor(path, OptionsOf(options)));
  });
}

lathe_error* lathe_load_artifacts(const char* graph, const char* library, const char* parameters,
                                  const lathe_load_options* options, lathe_program** program) {
  return Guarded([&] {
    Expect(graph != nullptr && program != nullptr, "an argument is NULL");
    *program = nullptr;
    const auto path = [](const char* given) { return std::string(given == nullptr ? "" : given); };
    *program = new lathe_program(lathe::runtime::LoadExecutor(
        lathe::runtime::ArtifactFiles{graph, path(library), path(parameters)}, OptionsOf(options)));
  });
}

lathe_error* lathe_load_memory(const void* bytes, size_t size, const lathe_load_options* options,
                               lathe_program** program) {
  return Guarded([&] {
    Expect(program != nullptr, "an argument is NULL");
    *program = nullptr;
    Expect(bytes != nullptr && reinterpret_cast<uintptr_t>(bytes) % Buffer::kAlignment == 0,
           "the bytes of a program are not aligned to 64 bytes");
    auto buffer = Buffer::Wrap(bytes, size, nullptr);
    *program = new lathe_program(
        lathe::runtime::LoadExecutor(std::move(buffer), "program in memory", OptionsOf(options)));
  });
}

lathe_error* lathe_verify_file(const char* path) {
  return Guarded([&] {
    Expect(path != nullptr, "the path is NULL");
    lathe::runtime::VerifyFile(path);
  });
}

void lathe_program_free(lathe_program* program) { delete program; }

const char* lathe_element_name(lathe_element element) {
  return lathe::Name(ElementOf(element)).data();
}

size_t lathe_num_inputs(const lathe_program* program) {
  return program == nullptr ? 0 : program->inputs.size();
}
size_t lathe_num_outputs(const lathe_program* program) {
  return program == nullptr ? 0 : program->outputs.size();
}
const lathe_port* lathe_input(const lathe_program* program, size_t index) {
  return index < lathe_num_inputs(program) ? &program->inputs[index].port : nullptr;
}
const lathe_port* lathe_output(const lathe_program* program, size_t index) {
  return index < lathe_num_outputs(program) ? &program->outputs[index].port : nullptr;
}

lathe_error* lathe_output_shape(const lathe_program* program, const lathe_input_view* inputs,
                                size_t num_inputs, size_t index, int64_t* shape, size_t* bytes) {
  return Guarded([&] {
    ExpectProgram(program);
    Expect(index < program->outputs.size(), "there is no such output");
    FewOrMany<InputView> views(num_inputs);
    Convert(inputs, num_inputs, views);
    const lathe::Shape dims = program->executor->OutputShapes(views)[index];
    Expect(shape != nullptr || dims.empty(), "the room for a shape is NULL");
    std::copy(dims.begin(), dims.end(), shape);
    if (bytes == nullptr) return;
    *bytes = lathe::StorageBytes(ElementOf(program->outputs[index].port.element),
                                 static_cast<size_t>(lathe::NumElements(dims)));
  });
}

lathe_error* lathe_run(const lathe_program* program, const lathe_input_view* inputs,
                       size_t num_inputs, const lathe_output_view* outputs, size_t num_outputs,
                       const lathe_run_options* options) {
  return Guarded([&] {
    ExpectProgram(program);
    FewOrMany<InputView> in(num_inputs);
    Convert(inputs, num_inputs, in);
    FewOrMany<OutputView> out(num_outputs);
    Expect(outputs != nullptr || num_outputs == 0, "the outputs are NULL");
    for (size_t i = 0; i < num_outputs; ++i) out[i] = {outputs[i].data, outputs[i].bytes};
    program->executor->Run(in, out, OptionsOf(options));
  });
}

lathe_error* lathe_run_into(const lathe_program* program, const lathe_input_view* inputs,
                            size_t num_inputs, lathe_allocate allocate, void* user,
                            const lathe_run_options* options) {
  return Guarded([&] {
    ExpectProgram(program);
    Expect(allocate != nullptr, "the function that gives memory is NULL");
    FewOrMany<InputView> in(num_inputs);
    Convert(inputs, num_inputs, in);
    const auto memory = [&](size_t i, std::span<const int64_t> shape, uint64_t bytes) {
      void* data = allocate(user, i, shape.data(), shape.size(), bytes);
      return OutputView{data, data == nullptr ? 0 : bytes};
    };
    program->executor->RunInto(in, memory, OptionsOf(options));
  });
}

uint64_t lathe_memory(const lathe_program* program) {
  return program == nullptr ? 0 : program->executor->arena_bytes();
}
void lathe_trim(const lathe_program* program) {
  if (program != nullptr) program->executor->Trim();
}

size_t lathe_parameter_count(const lathe_program* program) {
  return program == nullptr ? 0 : program->parameters.size();
}
const lathe_port* lathe_parameter(const lathe_program* program, size_t index) {
  return index < lathe_parameter_count(program) ? &program->parameters[index].port : nullptr;
}
const char* lathe_parameter_name(const lathe_program* program, size_t index) {
  const lathe_port* parameter = lathe_parameter(program, index);
  return parameter == nullptr ? nullptr : parameter->name;
}

lathe_error* lathe_parameter_get(const lathe_program* program, const char* name, void* data,
                                 size_t bytes, size_t* size) {
  return Guarded([&] {
    ExpectProgram(program);
    Expect(name != nullptr, "the name of a parameter is NULL");
    const lathe::Tensor value = program->executor->GetParameter(name);
    if (size != nullptr) *size = value.byte_size();
    if (data == nullptr) return;
    if (bytes != value.byte_size()) {
      throw Error(
          ErrorCode::kShape, "parameter/bytes",
          StrCat("parameter '", name, "' takes ", value.byte_size(), " bytes, not ", bytes));
    }
    std::copy_n(value.raw(), bytes, static_cast<std::byte*>(data));
  });
}

lathe_error* lathe_parameter_set(const lathe_program* program, const char* name,
                                 const lathe_input_view* value) {
  return Guarded([&] {
    ExpectProgram(program);
    Expect(name != nullptr && value != nullptr, "an argument is NULL");
    FewOrMany<InputView> view(1);
    Convert(value, 1, view);
    const ElementType element = view[0].element;
    const void* data = view[0].data;
    const std::span<const int64_t> shape = view[0].shape;
    Expect(lathe::BitWidth(element) != 0, "the elements of a parameter are of no type");
    const lathe::Shape dims(shape.begin(), shape.end());
    const size_t bytes =
        lathe::StorageBytes(element, static_cast<size_t>(lathe::NumElements(dims)));
    Expect(data != nullptr || bytes == 0, "the elements of a parameter are NULL");
    const auto buffer = Buffer::Wrap(data, bytes, nullptr);
    program->executor->SetParameter(name, lathe::Tensor::FromBuffer(element, dims, buffer));
  });
}

lathe_cancel* lathe_cancel_new(void) { return new (std::nothrow) lathe_cancel; }
void lathe_cancel_free(lathe_cancel* cancel) { delete cancel; }
void lathe_cancel_set(lathe_cancel* cancel) {
  if (cancel != nullptr) cancel->token.Cancel();
}
void lathe_cancel_reset(lathe_cancel* cancel) {
  if (cancel != nullptr) cancel->token.Reset();
}

lathe_profile* lathe_profile_new(void) { return new (std::nothrow) lathe_profile; }
void lathe_profile_free(lathe_profile* profile) { delete profile; }
lathe_error* lathe_profile_write(const lathe_profile* profile, const lathe_program* program,
                                 const char* path) {
  return Guarded([&] {
    ExpectProgram(program);
    Expect(profile != nullptr, "the profile is NULL");
    Expect(path != nullptr, "the path is NULL");
    lathe::WriteFile(path, profile->profile.ChromeTrace(program->executor->plan()));
  });
}

}  // extern "C"
