#pragma once

/* Runs compiled programs (.lx) from C: liblathe_runtime, which needs the C and C++ libraries alone.
 * C99 and later, and C++ (lathe/runtime/model.h is a face for C++).
 *
 * Functions that can fail return an error, or NULL if all went well; the caller frees it. Nothing
 * else is reported, printed or kept. Pointers that a program gives stay valid until it is freed. A
 * program that is NULL is an error (LATHE_INVALID_ARGUMENT), or has no inputs and outputs. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors ---- */

typedef struct lathe_error lathe_error;

typedef enum lathe_code {
  LATHE_INVALID_ARGUMENT = 1,
  LATHE_NOT_FOUND = 2,
  LATHE_UNSUPPORTED = 3, /* by this library or this processor */
  LATHE_DAMAGED = 4,     /* the file is cut off, damaged or contradicts itself */
  LATHE_SHAPE = 5,
  LATHE_TYPE = 6,
  LATHE_IO = 7,
  LATHE_LIMIT = 8, /* memory, time */
  LATHE_CANCELLED = 9,
  LATHE_INTERNAL = 10 /* our bug */
} lathe_code;

/* Of NULL: 0 and "". */
lathe_code lathe_error_code(const lathe_error* error);
/* Stays the same over versions: "run/input-shape". */
const char* lathe_error_id(const lathe_error* error);
/* One sentence. */
const char* lathe_error_message(const lathe_error* error);
/* For a person: several lines with id, place, what is known there, and what to do. */
const char* lathe_error_text(const lathe_error* error);
void lathe_error_free(lathe_error* error); /* NULL: does nothing */

/* ---- what programs share ---- */

/* Threads for the parallel loops of any number of programs. One run at a time has them; a loop of
 * another run finds them taken and runs on its own thread, without waiting. */
typedef struct lathe_thread_pool lathe_thread_pool;

/* `threads`, at most 1024, counts the thread that runs a program; 0: one per core that the process
 * may use. They start with the first loop. */
lathe_error* lathe_thread_pool_new(int32_t threads, lathe_thread_pool** pool);
/* Programs that use the threads keep them. NULL: does nothing. */
void lathe_thread_pool_free(lathe_thread_pool* pool);

/* Gives programs their memory for tensors between steps, instead of the system. Any thread that
 * runs or frees a program calls the functions, several at once; they return, and call no function
 * of the program. */
typedef struct lathe_allocator {
  void* user;
  /* `bytes`, more than 0, aligned to 64, with any contents. NULL: the run ends (LATHE_LIMIT). */
  void* (*allocate)(void* user, size_t bytes);
  /* Takes back what allocate gave for `bytes`. */
  void (*release)(void* user, void* memory, size_t bytes);
} lathe_allocator;

/* ---- programs ---- */

/* A loaded program: any number of threads may use it, and run it, at once. All but its mutable
 * parameters is immutable; runs of a program that has some take turns. */
typedef struct lathe_program lathe_program;

typedef struct lathe_load_options {
  size_t size;        /* sizeof(lathe_load_options) */
  int32_t threads;    /* for one run, at most 1024; 0: one per core that the process may use */
  uint64_t max_bytes; /* cap on what all runs together hold for tensors between steps; 0: none */
  lathe_thread_pool* pool;          /* for runs, instead of `threads` of its own; may be NULL */
  const lathe_allocator* allocator; /* is copied, `user` outlives the program; may be NULL */
} lathe_load_options;

/* "0.1.0" */
const char* lathe_runtime_version(void);

/* `options` may be NULL. The file is mapped and must not be changed in place while the program
 * lives; replacing it is fine. Only load what you trust: a program is machine code. */
lathe_error* lathe_load_file(const char* path, const lathe_load_options* options,
                             lathe_program** program);
/* A program in three parts (lathe/runtime/artifacts.h): GRAPH.json, and the files of its library
 * and its parameters; NULL: GRAPH.so and GRAPH.safetensors, as lathe_load_file takes them, too. */
lathe_error* lathe_load_artifacts(const char* graph, const char* library, const char* parameters,
                                  const lathe_load_options* options, lathe_program** program);
/* The bytes of a file. They are not copied, and must outlive the program; aligned to 64 bytes. */
lathe_error* lathe_load_memory(const void* bytes, size_t size, const lathe_load_options* options,
                               lathe_program** program);
/* Reads all of a file and checks all checksums, which loading does for all but the weights. */
lathe_error* lathe_verify_file(const char* path);
void lathe_program_free(lathe_program* program); /* NULL: does nothing */

/* Numbers as in ONNX's TensorProto. Any int may be given: those that are none of them are refused.
 */
#ifdef __cplusplus
typedef enum lathe_element : int {
#else
typedef enum lathe_element {
#endif
  LATHE_F32 = 1,
  LATHE_U8 = 2,
  LATHE_I8 = 3,
  LATHE_U16 = 4,
  LATHE_I16 = 5,
  LATHE_I32 = 6,
  LATHE_I64 = 7,
  LATHE_STRING = 8, /* see lathe_input_view and lathe_allocate */
  LATHE_BOOL = 9,   /* a byte, 0 or 1 */
  LATHE_F16 = 10,
  LATHE_F64 = 11,
  LATHE_U32 = 12,
  LATHE_U64 = 13,
  LATHE_C64 = 14,
  LATHE_C128 = 15,
  LATHE_BF16 = 16,
  LATHE_F8E4M3FN = 17,
  LATHE_F8E4M3FNUZ = 18,
  LATHE_F8E5M2 = 19,
  LATHE_F8E5M2FNUZ = 20,
  LATHE_U4 = 21, /* these, and 2-bit types: packed, element 0 in the low bits of byte 0 */
  LATHE_I4 = 22,
  LATHE_F4E2M1 = 23,
  LATHE_F8E8M0 = 24,
  LATHE_U2 = 25,
  LATHE_I2 = 26
} lathe_element;

/* "f32"; "undefined" for numbers that are none of them. */
const char* lathe_element_name(lathe_element element);

typedef struct lathe_dim {
  int64_t value;    /* -1 if it depends on the inputs */
  const char* text; /* "3", "N", "N + 1" */
} lathe_dim;

/* An input or an output. Of a tensor whose rank a run decides `rank` is 0; a list, a dict or an
 * optional has no element type, and can be neither given nor taken by the functions below. */
typedef struct lathe_port {
  const char* name;
  lathe_element element;
  size_t rank;
  const lathe_dim* dims; /* `rank` of them */
  const char* type;      /* all of it: "v_tensor<[N, 3], f32>", "list<v_tensor<*, string>>" */
} lathe_port;

/* Ports are numbered from 0, in the order of the program. */
size_t lathe_num_inputs(const lathe_program* program);
size_t lathe_num_outputs(const lathe_program* program);
/* NULL if there are not so many. */
const lathe_port* lathe_input(const lathe_program* program, size_t index);
const lathe_port* lathe_output(const lathe_program* program, size_t index);

/* ---- running ---- */

typedef struct lathe_cancel lathe_cancel;
typedef struct lathe_profile lathe_profile;

/* An argument, row-major and aligned to its element type. Strings are given as an array of
 * pointers, one to each; they end with NUL. */
typedef struct lathe_input_view {
  lathe_element element;
  const void* data; /* may be NULL if there are no elements */
  const int64_t* shape;
  size_t rank;
} lathe_input_view;

/* Where an output goes: aligned to its element type, at least as large as the output, and apart
 * from all other arguments. */
typedef struct lathe_output_view {
  void* data;
  size_t bytes;
} lathe_output_view;

typedef struct lathe_run_options {
  size_t size;            /* sizeof(lathe_run_options) */
  lathe_cancel* cancel;   /* may be NULL */
  lathe_profile* profile; /* may be NULL */
  double timeout_seconds; /* 0: any time; later than that a run ends with LATHE_LIMIT */
} lathe_run_options;

/* Writes the shape of output `index` for inputs of these shapes to `shape`, which has room for the
 * output's rank; and its size to `bytes` unless that is NULL. The inputs' data is not looked at. */
lathe_error* lathe_output_shape(const lathe_program* program, const lathe_input_view* inputs,
                                size_t num_inputs, size_t index, int64_t* shape, size_t* bytes);

/* Inputs and outputs in the order of the program; `options` may be NULL. Arguments are checked
 * before anything runs. Allocates nothing for shapes that were run before (as many at once, with at
 * most 16 inputs and 16 outputs). */
lathe_error* lathe_run(const lathe_program* program, const lathe_input_view* inputs,
                       size_t num_inputs, const lathe_output_view* outputs, size_t num_outputs,
                       const lathe_run_options* options);

/* Gives memory for output `index` once its shape is known: `bytes`, aligned to its elements, apart
 * from all other arguments. `bytes` may be 0. Strings come as an array of pointers, one to each, to
 * what lies behind them in the same memory; they end with NUL. */
typedef void* (*lathe_allocate)(void* user, size_t index, const int64_t* shape, size_t rank,
                                size_t bytes);

/* Runs with memory that is asked for: before anything runs or, for outputs whose sizes the program
 * computes from the elements of its inputs (how many boxes a detector finds), in between. It is the
 * only way to run a program with such outputs: lathe_output_shape fails for them. Memory that was
 * given stays the caller's when the run fails. */
lathe_error* lathe_run_into(const lathe_program* program, const lathe_input_view* inputs,
                            size_t num_inputs, lathe_allocate allocate, void* user,
                            const lathe_run_options* options);

/* Bytes held for tensors between steps, idle memory that later runs will use included. */
uint64_t lathe_memory(const lathe_program* program);
/* Gives idle memory back. */
void lathe_trim(const lathe_program* program);

/* ---- mutable parameters ---- */

/* Those that the program sets when it runs: weights that are trained, the state of an optimizer.
 * They begin with what the file holds. A run sets all of them or, when it fails, none; from the
 * first step on that sets one, neither cancelling nor a limit of time ends it any more. Functions
 * on them wait for the run that goes on, so lathe_allocate must not call them. */

size_t lathe_parameter_count(const lathe_program* program);
/* Sorted by name; NULL if there are not so many. */
const char* lathe_parameter_name(const lathe_program* program, size_t index);
/* Type and shape, as a port of constant dims; NULL if there are not so many. */
const lathe_port* lathe_parameter(const lathe_program* program, size_t index);
/* Copies the parameter as it is to `data`, which has room for `bytes`: exactly its size, unless
 * `data` is NULL: then only `*size`, which may be NULL, gets that. */
lathe_error* lathe_parameter_get(const lathe_program* program, const char* name, void* data,
                                 size_t bytes, size_t* size);
/* The next run begins with a copy of `value`, which has the parameter's type and shape. */
lathe_error* lathe_parameter_set(const lathe_program* program, const char* name,
                                 const lathe_input_view* value);

/* ---- ending a run early ---- */

/* NULL if there is no memory. */
lathe_cancel* lathe_cancel_new(void);
void lathe_cancel_free(lathe_cancel* cancel); /* NULL: does nothing */
/* From any thread, or a signal handler: runs with this object end within about a millisecond, in
 * the middle of a kernel, too, with LATHE_CANCELLED, until it is reset. */
void lathe_cancel_set(lathe_cancel* cancel);
/* Later runs with this object run again. */
void lathe_cancel_reset(lathe_cancel* cancel);

/* ---- where time goes ---- */

/* Records when steps ran; any number of runs of one program. NULL if there is no memory. */
lathe_profile* lathe_profile_new(void);
void lathe_profile_free(lathe_profile* profile); /* NULL: does nothing */
/* Writes what was recorded as a Chrome trace (chrome://tracing, Perfetto). */
lathe_error* lathe_profile_write(const lathe_profile* profile, const lathe_program* program,
                                 const char* path);

#ifdef __cplusplus
} /* extern "C" */
#endif
