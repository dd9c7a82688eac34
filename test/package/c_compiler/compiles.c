/* compiles MODEL.onnx OUT.lx: compiles a model from its file, from memory and to a file, and prints
 * an output of each for an input of zeros; what is wrong gives errors. */
#include <lathe/compiler.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

static void stop_on(lathe_error* error) {
  if (error == NULL) return;
  fputs(lathe_error_text(error), stderr);
  exit(1);
}

static void expect(lathe_error* error, const char* id) {
  if (error == NULL || strcmp(lathe_error_id(error), id) != 0) {
    printf("expected %s, got %s\n", id, error ? lathe_error_text(error) : "nothing");
    ++failures;
  }
  lathe_error_free(error);
}

static void run(lathe_program* program) {
  static const float image[64] = {0};
  static const int64_t shape[] = {1, 1, 8, 8};
  float scores[10];
  const lathe_input_view input = {LATHE_F32, image, shape, 4};
  const lathe_output_view output = {scores, sizeof(scores)};
  stop_on(lathe_run(program, &input, 1, &output, 1, NULL));
  printf("%s %.4f\n", lathe_output(program, 0)->name, (double)scores[0]);
  lathe_program_free(program);
}

/* What the callbacks have seen. */
typedef struct seen {
  int notes, warnings, progress, memories, most_memories;
  size_t done, total;
} seen;

static void see_log(void* user, lathe_severity severity, const char* id, const char* text) {
  seen* s = user;
  if (strlen(id) == 0 || strlen(text) == 0) ++failures;
  if (severity == LATHE_NOTE) ++s->notes;
  if (severity == LATHE_WARNING) ++s->warnings;
}

static void see_progress(void* user, size_t done, size_t total) {
  seen* s = user;
  if (done < s->done || done > total) ++failures;
  ++s->progress;
  s->done = done;
  s->total = total;
}

static void* allocate(void* user, size_t bytes) {
  seen* s = user;
  if (++s->memories > s->most_memories) s->most_memories = s->memories;
  return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void release(void* user, void* memory, size_t bytes) {
  seen* s = user;
  if (bytes == 0) ++failures;
  --s->memories;
  free(memory);
}

static void* allocate_nothing(void* user, size_t bytes) { return bytes == 0 ? user : NULL; }

/* Callbacks, an allocator, and a pool that the program keeps. */
static void check_callbacks(const char* model, const lathe_size* batch) {
  static const float image[64] = {0};
  static const int64_t shape[] = {1, 1, 8, 8};
  float scores[10];
  const lathe_input_view input = {LATHE_F32, image, shape, 4};
  const lathe_output_view output = {scores, sizeof(scores)};
  seen s = {0};
  lathe_allocator allocator = {&s, allocate, release};
  lathe_compile_options options = {0};
  lathe_program* program = NULL;
  options.size = sizeof(options);
  options.sizes = batch;
  options.num_sizes = 1;
  options.cache = model; /* not a folder: a warning */
  options.allocator = &allocator;
  options.log = see_log;
  options.progress = see_progress;
  options.user = &s;
  stop_on(lathe_thread_pool_new(2, &options.pool));
  stop_on(lathe_compile_file(model, &options, &program));
  lathe_thread_pool_free(options.pool);
  if (s.progress == 0 || s.done != s.total || s.memories != 0 || s.warnings != 1) ++failures;
  run(program);
  if (s.memories != 0 || s.most_memories != 1) ++failures;
  allocator.allocate = allocate_nothing;
  options.pool = NULL;
  options.progress = NULL;
  stop_on(lathe_compile_file(model, &options, &program));
  expect(lathe_run(program, &input, 1, &output, 1, NULL), "limit/memory");
  lathe_program_free(program);
}

static void check_errors(const char* model) {
  const lathe_size unknown = {"M", 1};
  lathe_compile_options options = {0};
  lathe_program* program = NULL;
  expect(lathe_compile_file(NULL, NULL, &program), "run/argument");
  expect(lathe_compile_file("missing.onnx", NULL, &program), "io/open");
  expect(lathe_compile_file(model, &options, &program), "run/argument"); /* without its size */
  options.size = sizeof(options);
  options.threads = 100000;
  expect(lathe_compile_file(model, &options, &program), "run/threads");
  options.threads = 1;
  options.target = "cuda";
  expect(lathe_compile_file(model, &options, &program), "codegen/target");
  options.target = NULL;
  options.sizes = &unknown;
  options.num_sizes = 1;
  expect(lathe_compile_file(model, &options, &program), "shape/unknown-symbol");
  expect(lathe_compile_memory("not a model", 11, NULL, &program), "onnx/wire");
  expect(lathe_compile_to_file(model, NULL, "/no/such/folder/out.lx"), "io/write");
  if (program != NULL) ++failures;
}

int main(int argc, char** argv) {
  static char bytes[1 << 20];
  const lathe_size batch = {"N", 1};
  lathe_compile_options options = {0};
  lathe_program* program = NULL;
  size_t size;
  FILE* file;
  if (argc != 3) return 2;
  options.size = sizeof(options);
  options.threads = 1;
  options.sizes = &batch;
  options.num_sizes = 1;
  stop_on(lathe_compile_file(argv[1], &options, &program));
  run(program);
  file = fopen(argv[1], "rb");
  size = fread(bytes, 1, sizeof(bytes), file);
  fclose(file);
  stop_on(lathe_compile_memory(bytes, size, &options, &program));
  run(program);
  stop_on(lathe_compile_to_file(argv[1], &options, argv[2]));
  stop_on(lathe_load_file(argv[2], NULL, &program));
  run(program);
  check_errors(argv[1]);
  check_callbacks(argv[1], &batch);
  return failures;
}
