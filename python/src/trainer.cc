#include "lathe/train/trainer.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>

#include "lathe/dialect/interpreter.h"
#include "python/src/interrupts.h"
#include "python/src/lent.h"
#include "python/src/values.h"

namespace nb = nanobind;

namespace lathe::python {
namespace {

using train::EpochReport;
using train::Metrics;
using train::StepReport;
using DataHandle = std::shared_ptr<const train::DataSet>;

// A trainer, and what ends it.
struct TrainerHandle {
  std::shared_ptr<IrContext> context;     // outlives the trainer
  CancelToken end;                        // of fit, for any reason
  std::atomic<bool> stopped = false;      // by the user
  bool one_epoch = false, ended = false;  // fit is for one epoch, which has ended
  std::atomic<bool> busy = false;
  std::unique_ptr<train::Trainer> trainer;
};

// One thread at a time.
class Use {
 public:
  explicit Use(TrainerHandle& handle) : handle_(handle) {
    if (!handle.busy.exchange(true)) return;
    throw Error(ErrorCode::kInvalidArgument, "train/busy", "the trainer is at work already");
  }
  ~Use() { handle_.busy = false; }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  train::Trainer* operator->() { return handle_.trainer.get(); }
  train::Trainer& operator*() { return *handle_.trainer; }

 private:
  TrainerHandle& handle_;
};

// ---- data ----

DataHandle FromArrays(const nb::dict& arrays) {
  NamedTensors tensors;
  for (const auto& [key, array] : arrays) {
    const auto name = nb::cast<std::string>(key);
    ArrayInput input(array, ElementType::kUndefined, StrCat("array '", name, "'"));
    tensors.emplace_back(name, std::move(input).ToTensor());
  }
  return train::FromTensors(std::move(tensors));
}

// ---- making one ----

// Weights by an initializer of the pass `initialize`.
void Initialize(Program& program, const std::string& method, uint64_t seed) {
  Program startup = program.Clone();
  const std::unique_ptr<Pass> pass = PassRegistry::Global().Make("initialize");
  pass->SetOption("method", method);
  pass->SetOption("seed", StrCat(seed));
  pass->Apply(startup);
  RunStartup(startup, program);
}

template <class Report>
std::function<void(const Report&)> CallbackOf(const Kept& function) {
  if (function == nullptr) return {};
  return [function](const Report& report) {
    const nb::gil_scoped_acquire acquire;
    (*function)(report);
  };
}

void Make(TrainerHandle* self, const Holder& holder, const train::TrainingRecipe& recipe,
          train::TrainerOptions options, const std::string& initialize, nb::handle on_step,
          nb::handle on_epoch) {
  options.recipe = recipe;
  options.on_step = CallbackOf<StepReport>(KeepSome(on_step));
  new (self) TrainerHandle;
  self->context = holder->context;
  options.on_epoch =
      [self, user = CallbackOf<EpochReport>(KeepSome(on_epoch))](const EpochReport& report) {
        if (user) user(report);
        if (!self->one_epoch) return;
        self->ended = true;
        self->end.Cancel();
      };
  try {
    options.cancel = &self->end;
    WithoutLock([&] {
      Program program = CloneOf(*holder, Gil::kReleased);
      if (!initialize.empty()) Initialize(program, initialize, options.seed);
      self->trainer = std::make_unique<train::Trainer>(program, options);
    });
  } catch (...) {
    self->~TrainerHandle();
    throw;
  }
}

// ---- training ----

// Whether the epochs are done, or the one. An interrupt lets the step end, and what Python makes of
// it is raised.
bool Fit(TrainerHandle& self, const DataHandle& data, const DataHandle& evaluation,
         bool one_epoch) {
  Use trainer(self);
  self.one_epoch = one_epoch;
  self.ended = false;
  self.end.Reset();
  if (self.stopped) self.end.Cancel();
  const train::FitResult result = [&] {
    const InterruptScope scope(self.end);
    const nb::gil_scoped_release release;
    return trainer->Fit(*data, evaluation.get());
  }();
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  return !self.stopped && (self.ended || result == train::FitResult::kDone);
}

Metrics Evaluate(TrainerHandle& self, const DataHandle& data) {
  Use trainer(self);
  return WithoutLock([&] { return trainer->Evaluate(*data); });
}

Holder Trained(TrainerHandle& self) {
  Use trainer(self);
  return std::make_shared<ProgramHolder>(self.context, trainer->Trained());
}

void BindReports(nb::module_& m) {
  nb::class_<Metrics>(m, "Metrics", "Means over samples.")
      .def_ro("loss", &Metrics::loss)
      .def_ro("accuracy", &Metrics::accuracy, "The share that is right; None but for classes.")
      .def_ro("samples", &Metrics::samples)
      .def("__repr__", [](const Metrics& m_) {
        std::string text = StrCat("<lathe.Metrics loss ", m_.loss);
        if (m_.accuracy) text += StrCat(", accuracy ", *m_.accuracy);
        return text + ">";
      });
  nb::class_<StepReport>(m, "StepReport", "After a step of a lathe.Trainer.")
      .def_ro("epoch", &StepReport::epoch, "From 1 on.")
      .def_ro("epochs", &StepReport::epochs)
      .def_ro("batch", &StepReport::batch, "Of the epoch, from 1 on.")
      .def_ro("batches", &StepReport::batches)
      .def_ro("step", &StepReport::step, "Of all epochs, from 1 on.")
      .def_ro("metrics", &StepReport::metrics, "Of the batch.")
      .def_ro("seconds", &StepReport::seconds, "Since fit began.")
      .def_ro("samples_per_second", &StepReport::samples_per_second);
  nb::class_<EpochReport>(m, "EpochReport", "After an epoch of a lathe.Trainer.")
      .def_ro("epoch", &EpochReport::epoch, "From 1 on.")
      .def_ro("epochs", &EpochReport::epochs)
      .def_ro("step", &EpochReport::step, "Steps so far.")
      .def_ro("training", &EpochReport::training, "Of the batches as they were trained.")
      .def_ro("evaluation", &EpochReport::evaluation, "After the epoch; None without such data.")
      .def_ro("seconds", &EpochReport::seconds, "Since fit began.");
}

struct DataSetHandle {
  DataHandle data;
};

void BindData(nb::module_& m) {
  nb::class_<DataSetHandle>(m, "DataSet", "Samples to train on, in arrays.")
      .def("__len__", [](const DataSetHandle& d) { return d.data->size(); })
      .def_prop_ro("names", [](const DataSetHandle& d) {
        std::vector<std::string> names;
        for (const train::Column& column : d.data->columns()) names.push_back(column.name);
        return names;
      });
  m.def(
      "arrays", [](const nb::dict& arrays) { return DataSetHandle{FromArrays(arrays)}; },
      nb::arg("arrays"), nb::sig("def arrays(arrays: dict[str, typing.Any]) -> DataSet"));
  m.def(
      "open_data",
      [](const std::vector<std::string>& sources) {
        return DataSetHandle{WithoutLock([&] { return train::OpenData(sources); })};
      },
      nb::arg("sources"));
}

}  // namespace

void BindTrainer(nb::module_& m) {
  BindReports(m);
  BindData(m);
  nb::class_<TrainerHandle>(m, "Trainer")
      .def(
          "__init__",
          [](TrainerHandle* self, const Holder& program, const std::string& loss,
             const std::string& output, int64_t class_axis, const std::string& optimizer,
             const std::vector<std::string>& freeze, double loss_scale, int64_t epochs,
             int64_t batch, uint64_t seed, bool shuffle, bool drop_last, const std::string& labels,
             const std::string& normalize, const std::string& checkpoint,
             const std::string& initialize, const std::string& target, int threads,
             const std::string& cache, const std::string& precision, uint64_t memory,
             nb::handle on_step, nb::handle on_epoch) {
            Make(self, program,
                 {.loss = loss,
                  .output = output,
                  .class_axis = class_axis,
                  .optimizer = optimizer,
                  .freeze = freeze,
                  .loss_scale = loss_scale},
                 {.epochs = epochs,
                  .batch = batch,
                  .seed = seed,
                  .shuffle = shuffle,
                  .drop_last = drop_last,
                  .labels = labels,
                  .image = ImageOptions::Named(normalize),
                  .compile = {.target = target,
                              .cache = cache,
                              .precision = PrecisionNamed(precision),
                              .threads = threads},
                  .memory = memory,
                  .checkpoint = checkpoint},
                 initialize, on_step, on_epoch);
          },
          nb::arg("program"), nb::kw_only(), nb::arg("loss"), nb::arg("output"),
          nb::arg("class_axis"), nb::arg("optimizer"), nb::arg("freeze"), nb::arg("loss_scale"),
          nb::arg("epochs"), nb::arg("batch"), nb::arg("seed"), nb::arg("shuffle"),
          nb::arg("drop_last"), nb::arg("labels"), nb::arg("normalize"), nb::arg("checkpoint"),
          nb::arg("initialize"), nb::arg("target"), nb::arg("threads"), nb::arg("cache"),
          nb::arg("precision"), nb::arg("memory"), nb::arg("on_step").none(),
          nb::arg("on_epoch").none())
      .def(
          "_fit",
          [](TrainerHandle& self, const DataSetHandle& data, const DataSetHandle* evaluation,
             bool one_epoch) {
            return Fit(self, data.data, evaluation == nullptr ? nullptr : evaluation->data,
                       one_epoch);
          },
          nb::arg("data"), nb::arg("evaluation").none(), nb::arg("one_epoch"))
      .def("_begin", [](TrainerHandle& self) { self.stopped = false; })
      .def(
          "_evaluate",
          [](TrainerHandle& self, const DataSetHandle& data) { return Evaluate(self, data.data); },
          nb::arg("data"))
      .def("trained", Trained, "The program as it was given, with the weights as they are now.")
      .def(
          "stop",
          [](TrainerHandle& self) {
            self.stopped = true;
            self.end.Cancel();
          },
          "Ends fit after the step that runs; for callbacks and other threads.")
      .def(
          "_save",
          [](TrainerHandle& self, const std::string& path) {
            Use trainer(self);
            WithoutLock([&] { trainer->SaveCheckpoint(path); });
          },
          nb::arg("path"))
      .def(
          "_resume",
          [](TrainerHandle& self, const std::string& path) {
            Use trainer(self);
            WithoutLock([&] { trainer->Resume(path); });
          },
          nb::arg("path"))
      .def_prop_ro(
          "checkpoint_path",
          [](const TrainerHandle& self) { return self.trainer->CheckpointPath(); },
          "Where the checkpoints are; '' without a folder.")
      .def_prop_ro(
          "step", [](const TrainerHandle& self) { return self.trainer->step(); }, "Steps made.")
      .def_prop_ro(
          "epoch", [](const TrainerHandle& self) { return self.trainer->epoch(); },
          "Epochs completed.");
}

}  // namespace lathe::python
