/* Runs a compiled program once on made-up inputs: run_lx FILE.lx [EXTENT]. Symbolic dims get the
 * extent, 1 unless told. Needs liblathe_runtime alone:
 *
 *   cc main.c -llathe_runtime -o run_lx */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "lathe/runtime.h"

static void stop_on(lathe_error* error) {
  if (error == NULL) return;
  fputs(lathe_error_text(error), stderr);
  lathe_error_free(error);
  exit(1);
}

static void print_port(const char* what, const lathe_port* port) {
  size_t axis;
  printf("%s %s : %s[", what, port->name, lathe_element_name(port->element));
  for (axis = 0; axis < port->rank; ++axis) {
    printf("%s%s", axis == 0 ? "" : ",", port->dims[axis].text);
  }
  puts("]");
}

/* Zeros, or a ramp if they are floats. */
static lathe_input_view make_input(const lathe_port* port, int64_t extent) {
  int64_t* shape = malloc((port->rank + 1) * sizeof(*shape));
  lathe_input_view view;
  size_t axis, elements = 1, i;
  void* data;
  for (axis = 0; axis < port->rank; ++axis) {
    shape[axis] = port->dims[axis].value < 0 ? extent : port->dims[axis].value;
    elements *= (size_t)shape[axis];
  }
  data = calloc(elements + 1, 16); /* no element is larger */
  for (i = 0; port->element == LATHE_F32 && i < elements; ++i) {
    ((float*)data)[i] = (float)(i % 100) / 100.0f;
  }
  view.element = port->element;
  view.data = data;
  view.shape = shape;
  view.rank = port->rank;
  return view;
}

static void* allocate(void* user, size_t index, const int64_t* shape, size_t rank, size_t bytes) {
  lathe_output_view* output = (lathe_output_view*)user + index;
  (void)shape;
  (void)rank;
  output->data = malloc(bytes + 1);
  output->bytes = bytes;
  return output->data;
}

static void print_output(const lathe_port* port, const void* data, size_t bytes) {
  size_t i;
  printf("%s:", port->name);
  for (i = 0; port->element == LATHE_F32 && i < bytes / 4 && i < 8; ++i) {
    printf(" %g", (double)((const float*)data)[i]);
  }
  printf(" (%zu bytes)\n", bytes);
}

int main(int argc, char** argv) {
  lathe_program* program = NULL;
  lathe_input_view* inputs;
  lathe_output_view* outputs;
  size_t num_inputs, num_outputs, i;
  if (argc < 2) {
    fprintf(stderr, "usage: run_lx FILE.lx [EXTENT]\n");
    return 2;
  }
  stop_on(lathe_load_file(argv[1], NULL, &program));
  num_inputs = lathe_num_inputs(program);
  num_outputs = lathe_num_outputs(program);
  inputs = calloc(num_inputs + 1, sizeof(*inputs));
  outputs = calloc(num_outputs + 1, sizeof(*outputs));
  for (i = 0; i < num_inputs; ++i) {
    print_port("input", lathe_input(program, i));
    inputs[i] = make_input(lathe_input(program, i), argc > 2 ? atoll(argv[2]) : 1);
  }
  for (i = 0; i < num_outputs; ++i) print_port("output", lathe_output(program, i));
  stop_on(lathe_run_into(program, inputs, num_inputs, allocate, outputs, NULL));
  for (i = 0; i < num_outputs; ++i) {
    print_output(lathe_output(program, i), outputs[i].data, outputs[i].bytes);
    free(outputs[i].data);
  }
  for (i = 0; i < num_inputs; ++i) {
    free((void*)inputs[i].data);
    free((void*)inputs[i].shape);
  }
  free(inputs);
  free(outputs);
  lathe_program_free(program);
  return 0;
}
