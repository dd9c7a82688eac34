/* Runs a compiled program many times with changing shapes and prints by how much memory grew after
 * a warm-up of a tenth of the runs: runtime_soak FILE.lx RUNS [MAX_EXTENT [THREADS]]. Symbolic dims
 * get extents up to MAX_EXTENT, all the same one in a run. Fails if memory grew by 1% or more, or
 * if the same inputs gave other outputs. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lathe/runtime.h"

enum { kMaxPorts = 16, kMaxRank = 16 };

typedef struct soak {
  lathe_program* program;
  size_t num_inputs, num_outputs;
  lathe_input_view inputs[kMaxPorts];
  int64_t shapes[kMaxPorts][kMaxRank];
  lathe_output_view outputs[kMaxPorts];
  size_t room[kMaxPorts]; /* of outputs */
  uint64_t* sums;         /* of the outputs by extent; 0: not run yet */
} soak;

static void stop_on(lathe_error* error) {
  if (error == NULL) return;
  fputs(lathe_error_text(error), stderr);
  exit(1);
}

/* Of the program's own: pages of files come and go as the system likes. */
static long resident_kilobytes(void) {
  char line[256];
  long kilobytes = 0;
  FILE* file = fopen("/proc/self/status", "r");
  while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
    if (sscanf(line, "RssAnon: %ld", &kilobytes) == 1) break;
  }
  if (file != NULL) fclose(file);
  return kilobytes;
}

/* The views for that extent. Data stays what it was; there is enough for `most`. */
static void shape_inputs(soak* s, int64_t extent) {
  size_t i, a;
  for (i = 0; i < s->num_inputs; ++i) {
    const lathe_port* port = lathe_input(s->program, i);
    for (a = 0; a < port->rank; ++a) {
      s->shapes[i][a] = port->dims[a].value < 0 ? extent : port->dims[a].value;
    }
    s->inputs[i].element = port->element;
    s->inputs[i].shape = s->shapes[i];
    s->inputs[i].rank = port->rank;
  }
}

static void make_inputs(soak* s, int64_t most) {
  size_t i, a, k;
  shape_inputs(s, most);
  for (i = 0; i < s->num_inputs; ++i) {
    size_t elements = 1;
    char* data;
    for (a = 0; a < s->inputs[i].rank; ++a) elements *= (size_t)s->shapes[i][a];
    data = calloc(elements + 1, 16);
    for (k = 0; s->inputs[i].element == LATHE_F32 && k < elements; ++k) {
      ((float*)(void*)data)[k] = (float)((k * 7) % 101) / 101.0f;
    }
    s->inputs[i].data = data;
  }
}

static uint64_t checksum(uint64_t sum, const unsigned char* bytes, size_t count) {
  size_t i;
  for (i = 0; i < count; ++i) sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
  return sum;
}

static void* allocate(void* user, size_t i, const int64_t* shape, size_t rank, size_t bytes) {
  soak* s = user;
  (void)shape;
  (void)rank;
  if (bytes > s->room[i]) {
    free(s->outputs[i].data);
    s->outputs[i].data = malloc(bytes);
    s->room[i] = bytes;
  }
  s->outputs[i].bytes = bytes;
  return s->outputs[i].data;
}

static void run(soak* s, int64_t extent) {
  uint64_t sum = UINT64_C(0xcbf29ce484222325);
  size_t i;
  shape_inputs(s, extent);
  stop_on(lathe_run_into(s->program, s->inputs, s->num_inputs, allocate, s, NULL));
  for (i = 0; i < s->num_outputs; ++i) {
    sum = checksum(sum, s->outputs[i].data, s->outputs[i].bytes);
  }
  sum |= 1;
  if (s->sums[extent] != 0 && s->sums[extent] != sum) {
    fprintf(stderr, "extent %" PRId64 " gave other outputs than before\n", extent);
    exit(1);
  }
  s->sums[extent] = sum;
}

int main(int argc, char** argv) {
  soak s;
  lathe_load_options options = {sizeof(options), 0, 0, NULL, NULL};
  long runs, i, before = 0, after;
  int64_t most;
  uint32_t random = 1;
  if (argc < 3) return 2;
  memset(&s, 0, sizeof(s));
  runs = atol(argv[2]);
  most = argc > 3 ? atoll(argv[3]) : 8;
  options.threads = argc > 4 ? atoi(argv[4]) : 0;
  stop_on(lathe_load_file(argv[1], &options, &s.program));
  s.num_inputs = lathe_num_inputs(s.program);
  s.num_outputs = lathe_num_outputs(s.program);
  if (s.num_inputs > kMaxPorts || s.num_outputs > kMaxPorts) return 2;
  s.sums = calloc((size_t)most + 1, sizeof(*s.sums));
  make_inputs(&s, most);
  run(&s, most);
  (void)resident_kilobytes(); /* takes memory itself */
  for (i = 0; i < runs; ++i) {
    random = random * 1664525u + 1013904223u;
    run(&s, 1 + (int64_t)(random >> 8) % most);
    if (i == runs / 10) before = resident_kilobytes();
  }
  after = resident_kilobytes();
  printf("%ld runs: %ld kB after the warm-up, %ld kB in the end\n", runs, before, after);
  lathe_program_free(s.program);
  for (i = 0; i < kMaxPorts; ++i) {
    free((void*)s.inputs[i].data);
    free(s.outputs[i].data);
  }
  free(s.sums);
  return after - before < before / 100.0 ? 0 : 1;
}
