/* client FILE.lx: the outputs for an input of zeros. */
#include <lathe/runtime.h>
#include <lathe/version.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  static const float image[64] = {0};
  static const int64_t shape[] = {1, 1, 8, 8};
  float scores[10];
  const lathe_input_view input = {LATHE_F32, image, shape, 4};
  const lathe_output_view output = {scores, sizeof(scores)};
  lathe_program* program = NULL;
  lathe_error* error = lathe_load_file(argc > 1 ? argv[1] : "", NULL, &program);
  if (error == NULL) error = lathe_run(program, &input, 1, &output, 1, NULL);
  if (error != NULL) return fputs(lathe_error_text(error), stderr), 1;
  printf("%s %.4f\n", lathe_output(program, 0)->name, (double)scores[0]);
  lathe_program_free(program);
  return strcmp(lathe_runtime_version(), LATHE_VERSION_STRING) != 0;
}
