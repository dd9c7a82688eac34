/* Trains a compiled step with the run time alone: train_check FILE.lx STEPS ROWS OUT writes the
 * parameters, sorted by name and one after the other, to OUT, and prints the loss of each step. */

#include <stdio.h>
#include <stdlib.h>

#include "lathe/runtime.h"

enum { kColumns = 6, kMostRows = 1024 };

static void Stop(lathe_error* error) {
  if (error == NULL) return;
  fputs(lathe_error_text(error), stderr);
  exit(1);
}

/* As TrainingBatch in test/unit/training_step.h. */
static void FillBatch(float* x, int64_t* labels, int64_t rows, int64_t step) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < kColumns; ++k) {
      const int64_t at = i * kColumns + k;
      x[at] = (float)((at * 7 + step * 3) % 11 - 5) / 4;
    }
    labels[i] = x[i * kColumns] > 0 ? 2 : i % 2;
  }
}

static void RunStep(const lathe_program* program, int64_t rows, int64_t step) {
  static float x[kMostRows * kColumns];
  static int64_t labels[kMostRows];
  const int64_t shape[] = {rows, kColumns};
  float loss = 0;
  FillBatch(x, labels, rows, step);
  const lathe_input_view inputs[] = {{LATHE_F32, x, shape, 2}, {LATHE_I64, labels, shape, 1}};
  const lathe_output_view output = {&loss, sizeof loss};
  Stop(lathe_run(program, inputs, 2, &output, 1, NULL));
  printf("%.9g\n", loss);
}

static void WriteParameters(const lathe_program* program, FILE* out) {
  for (size_t i = 0; i < lathe_parameter_count(program); ++i) {
    const char* name = lathe_parameter_name(program, i);
    size_t bytes = 0;
    Stop(lathe_parameter_get(program, name, NULL, 0, &bytes));
    void* data = malloc(bytes);
    if (data == NULL) exit(1);
    Stop(lathe_parameter_get(program, name, data, bytes, NULL));
    if (fwrite(data, 1, bytes, out) != bytes) exit(1);
    free(data);
  }
}

int main(int argc, char** argv) {
  const long steps = argc == 5 ? atol(argv[2]) : 0, rows = argc == 5 ? atol(argv[3]) : 0;
  if (steps < 1 || rows < 1 || rows > kMostRows) {
    fputs("train_check FILE.lx STEPS ROWS OUT\n", stderr);
    return 2;
  }
  lathe_program* program;
  Stop(lathe_load_file(argv[1], NULL, &program));
  for (long step = 0; step < steps; ++step) RunStep(program, rows, step);
  FILE* out = fopen(argv[4], "wb");
  if (out == NULL) return 1;
  WriteParameters(program, out);
  lathe_program_free(program);
  return fclose(out) == 0 ? 0 : 1;
}
