/* What C sees of a program y[N] = 2 * x[N], given as a file: runtime_check FILE.lx TRACE.json
 * GRAPH.json, the last the same in three parts.
 * Prints what is wrong, if anything is. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/runtime.h"

static int failures = 0;

#define EXPECT(condition)                                \
  do {                                                   \
    if (!(condition)) {                                  \
      printf("line %d: not %s\n", __LINE__, #condition); \
      ++failures;                                        \
    }                                                    \
  } while (0)

static void expect_fine(int line, lathe_error* error) {
  if (error == NULL) return;
  printf("line %d: %s", line, lathe_error_text(error));
  lathe_error_free(error);
  ++failures;
}

static void expect_error(int line, lathe_error* error, lathe_code code, const char* id) {
  if (error == NULL || lathe_error_code(error) != code || strcmp(lathe_error_id(error), id) != 0) {
    printf("line %d: expected %s, got %s\n", line, id, error ? lathe_error_text(error) : "nothing");
    ++failures;
  }
  lathe_error_free(error);
}

#define FINE(call) expect_fine(__LINE__, call)
#define FAILS(call, code, id) expect_error(__LINE__, call, code, id)

static void check_ports(const lathe_program* program) {
  const lathe_port* x = lathe_input(program, 0);
  EXPECT(lathe_num_inputs(program) == 1 && lathe_num_outputs(program) == 1);
  EXPECT(strcmp(x->name, "x") == 0 && x->element == LATHE_F32 && x->rank == 1);
  EXPECT(x->dims[0].value == -1 && strcmp(x->dims[0].text, "N") == 0);
  EXPECT(strcmp(lathe_output(program, 0)->name, "y") == 0);
  EXPECT(lathe_input(program, 1) == NULL && lathe_output(program, 1) == NULL);
  EXPECT(strcmp(lathe_element_name(x->element), "f32") == 0);
  EXPECT(strcmp(lathe_element_name((lathe_element)77), "undefined") == 0);
}

/* Gives what `user` points to. */
static void* allocate(void* user, size_t index, const int64_t* shape, size_t rank, size_t bytes) {
  EXPECT(index == 0 && rank == 1 && shape[0] == 3 && bytes == 12);
  return *(void**)user;
}

static void check_runs(const lathe_program* program, const char* trace) {
  const float x[3] = {1, 2, 3.5f};
  float y[3] = {0, 0, 0};
  int64_t three = 3, shape = 0;
  size_t bytes = 0;
  lathe_input_view in = {LATHE_F32, x, &three, 1};
  lathe_output_view out = {y, sizeof(y)};
  lathe_run_options options = {sizeof(options), NULL, NULL, 0};
  FINE(lathe_output_shape(program, &in, 1, 0, &shape, &bytes));
  EXPECT(shape == 3 && bytes == 12);
  FAILS(lathe_output_shape(program, &in, 1, 1, &shape, NULL), LATHE_INVALID_ARGUMENT,
        "run/argument");
  FINE(lathe_run(program, &in, 1, &out, 1, NULL));
  EXPECT(y[0] == 2 && y[1] == 4 && y[2] == 7);
  out.data = NULL;
  FAILS(lathe_run_into(program, &in, 1, allocate, &out.data, NULL), LATHE_INVALID_ARGUMENT,
        "run/output-data");
  FAILS(lathe_run_into(program, &in, 1, NULL, NULL, NULL), LATHE_INVALID_ARGUMENT, "run/argument");
  out.data = y;
  y[2] = 0;
  FINE(lathe_run_into(program, &in, 1, allocate, &out.data, NULL));
  EXPECT(y[0] == 2 && y[1] == 4 && y[2] == 7);
  options.cancel = lathe_cancel_new();
  lathe_cancel_set(options.cancel);
  FAILS(lathe_run(program, &in, 1, &out, 1, &options), LATHE_CANCELLED, "run/cancelled");
  lathe_cancel_reset(options.cancel);
  options.profile = lathe_profile_new();
  FINE(lathe_run(program, &in, 1, &out, 1, &options));
  FINE(lathe_profile_write(options.profile, program, trace));
  lathe_cancel_free(options.cancel);
  lathe_profile_free(options.profile);
  in.element = LATHE_F64;
  FAILS(lathe_run(program, &in, 1, &out, 1, NULL), LATHE_TYPE, "run/input-type");
  in.element = LATHE_F32;
  in.rank = 0;
  FAILS(lathe_run(program, &in, 1, &out, 1, NULL), LATHE_SHAPE, "run/input-shape");
  in.rank = 1;
  FAILS(lathe_run(program, &in, 0, &out, 1, NULL), LATHE_INVALID_ARGUMENT, "run/input-count");
  out.bytes = 11;
  FAILS(lathe_run(program, &in, 1, &out, 1, NULL), LATHE_INVALID_ARGUMENT, "run/output-data");
  FAILS(lathe_run(program, NULL, 1, &out, 1, NULL), LATHE_INVALID_ARGUMENT, "run/argument");
  lathe_trim(program);
  EXPECT(lathe_memory(program) == 0);
}

static void check_artifacts(const char* graph, const char* trace) {
  lathe_program* program = NULL;
  FINE(lathe_load_file(graph, NULL, &program));
  if (program == NULL) return;
  lathe_program_free(program);
  FINE(lathe_verify_file(graph));
  FINE(lathe_load_artifacts(graph, NULL, NULL, NULL, &program));
  check_ports(program);
  check_runs(program, trace);
  lathe_program_free(program);
  FAILS(lathe_load_artifacts(graph, graph, NULL, NULL, &program), LATHE_DAMAGED,
        "artifact/library");
  FAILS(lathe_load_artifacts(graph, NULL, "/no/such", NULL, &program), LATHE_NOT_FOUND, "io/open");
  FAILS(lathe_load_artifacts(NULL, NULL, NULL, NULL, &program), LATHE_INVALID_ARGUMENT,
        "run/argument");
}

/* What a caller who does not look at errors gives. */
static void check_null(const lathe_program* program, const char* path) {
  lathe_load_options options = {sizeof(options), 100000, 0, NULL, NULL};
  lathe_program* other = NULL;
  lathe_profile* profile = lathe_profile_new();
  int64_t shape = 0;
  FAILS(lathe_run(NULL, NULL, 0, NULL, 0, NULL), LATHE_INVALID_ARGUMENT, "run/argument");
  FAILS(lathe_run_into(NULL, NULL, 0, allocate, NULL, NULL), LATHE_INVALID_ARGUMENT,
        "run/argument");
  FAILS(lathe_output_shape(NULL, NULL, 0, 0, &shape, NULL), LATHE_INVALID_ARGUMENT, "run/argument");
  FAILS(lathe_profile_write(NULL, program, path), LATHE_INVALID_ARGUMENT, "run/argument");
  FAILS(lathe_profile_write(profile, NULL, path), LATHE_INVALID_ARGUMENT, "run/argument");
  EXPECT(lathe_num_inputs(NULL) == 0 && lathe_num_outputs(NULL) == 0);
  EXPECT(lathe_input(NULL, 0) == NULL && lathe_output(NULL, 0) == NULL);
  EXPECT(lathe_memory(NULL) == 0);
  EXPECT(lathe_error_code(NULL) == 0 && strcmp(lathe_error_text(NULL), "") == 0);
  lathe_trim(NULL);
  lathe_cancel_set(NULL);
  lathe_cancel_reset(NULL);
  lathe_cancel_free(NULL);
  lathe_profile_free(NULL);
  lathe_profile_free(profile);
  FAILS(lathe_load_file(path, &options, &other), LATHE_INVALID_ARGUMENT, "run/threads");
  options.threads = -1;
  FAILS(lathe_load_file(path, &options, &other), LATHE_INVALID_ARGUMENT, "run/argument");
}

/* One pool for two programs, which outlive it. */
static void check_pool(const char* path, const char* trace) {
  lathe_load_options options = {sizeof(options), 0, 0, NULL, NULL};
  lathe_program *one = NULL, *two = NULL;
  FAILS(lathe_thread_pool_new(2, NULL), LATHE_INVALID_ARGUMENT, "run/argument");
  FAILS(lathe_thread_pool_new(100000, &options.pool), LATHE_INVALID_ARGUMENT, "run/threads");
  EXPECT(options.pool == NULL);
  lathe_thread_pool_free(NULL);
  FINE(lathe_thread_pool_new(2, &options.pool));
  FINE(lathe_load_file(path, &options, &one));
  FINE(lathe_load_file(path, &options, &two));
  lathe_thread_pool_free(options.pool);
  check_runs(one, trace);
  lathe_program_free(one);
  check_runs(two, trace);
  lathe_program_free(two);
}

/* What a program that was compiled with an older header gives. */
static void check_older(const char* path) {
  lathe_load_options options = {offsetof(lathe_load_options, pool), 1, 0, NULL, NULL};
  lathe_program* program = NULL;
  options.pool = (lathe_thread_pool*)8; /* is not looked at */
  FINE(lathe_load_file(path, &options, &program));
  lathe_program_free(program);
}

static void check_allocator(const char* path) {
  lathe_allocator nothing = {NULL, NULL, NULL};
  lathe_load_options options = {sizeof(options), 1, 0, NULL, NULL};
  lathe_program* program = NULL;
  options.allocator = &nothing;
  FAILS(lathe_load_file(path, &options, &program), LATHE_INVALID_ARGUMENT, "run/argument");
}

/* `base` is what to free. */
static char* read_aligned(const char* path, size_t* size, void** base) {
  FILE* file = fopen(path, "rb");
  char* memory;
  fseek(file, 0, SEEK_END);
  *size = (size_t)ftell(file);
  rewind(file);
  *base = malloc(*size + 64);
  memory = *base;
  memory += (64 - (size_t)memory % 64) % 64;
  if (fread(memory, 1, *size, file) != *size) ++failures;
  fclose(file);
  return memory;
}

int main(int argc, char** argv) {
  lathe_program* program = NULL;
  lathe_load_options options = {sizeof(options), 2, 1 << 20, NULL, NULL};
  size_t size = 0;
  char* memory;
  void* base;
  if (argc != 4) return 2;
  EXPECT(strlen(lathe_runtime_version()) >= 5);
  FINE(lathe_load_file(argv[1], &options, &program));
  if (program == NULL) return 1;
  check_ports(program);
  check_runs(program, argv[2]);
  check_null(program, argv[1]);
  check_pool(argv[1], argv[2]);
  check_older(argv[1]);
  check_allocator(argv[1]);
  lathe_program_free(program);
  FINE(lathe_verify_file(argv[1]));
  memory = read_aligned(argv[1], &size, &base);
  FINE(lathe_load_memory(memory, size, NULL, &program));
  check_ports(program);
  lathe_program_free(program);
  FAILS(lathe_load_memory(memory, size / 2, NULL, &program), LATHE_DAMAGED, "lx/truncated");
  EXPECT(program == NULL);
  FAILS(lathe_load_memory(memory + 4, size - 4, NULL, &program), LATHE_INVALID_ARGUMENT,
        "run/argument");
  FAILS(lathe_load_file("/no/such.lx", NULL, &program), LATHE_NOT_FOUND, "io/open");
  options.size = 0;
  FAILS(lathe_load_file(argv[1], &options, &program), LATHE_INVALID_ARGUMENT, "run/argument");
  lathe_program_free(NULL);
  check_artifacts(argv[3], argv[2]);
  free(base);
  if (failures == 0) puts("fine");
  return failures == 0 ? 0 : 1;
}
