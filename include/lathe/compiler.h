#pragma once

/* Compiles models from C: liblathe. What comes out is a program of lathe/runtime.h, whose functions
 * liblathe has, too; a C program that only runs compiled files links liblathe_runtime instead.
 * Errors, NULL and ownership are as there. */

#include "lathe/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The size of a symbolic dim of the model's inputs. */
typedef struct lathe_size {
  const char* name; /* "N" */
  int64_t value;
} lathe_size;

typedef struct lathe_compile_options {
  size_t size;             /* sizeof(lathe_compile_options) */
  int32_t threads;         /* for one run and for compiling, at most 1024; 0: one per core */
  uint64_t max_bytes;      /* cap on what all runs together hold for tensors; 0: none */
  const char* target;      /* "avx2", "avx512", ...; NULL: the best of this machine */
  const char* cache;       /* folder where machine code is kept for the next time; NULL: nowhere */
  double timeout_seconds;  /* of the compilation; 0: any time */
  lathe_cancel* cancel;    /* ends the compilation; may be NULL */
  const lathe_size* sizes; /* fixes sizes, which makes faster code; others stay open */
  size_t num_sizes;
  const char* precision; /* "strict", "f32", "high", "bf16"; NULL: "f32" */
} lathe_compile_options;

/* An ONNX file (.onnx) or Lathe text (.lathe), for runs in this process. `options` may be NULL.
 * Errors: what is wrong with the file or the model; LATHE_UNSUPPORTED, with the operations, if it
 * has no plan. Operations without machine code run in the interpreter. */
lathe_error* lathe_compile_file(const char* path, const lathe_compile_options* options,
                                lathe_program** program);
/* The bytes of an ONNX file, whose weights must not lie in other files. They are not copied, and
 * must outlive the program. */
lathe_error* lathe_compile_memory(const void* bytes, size_t size,
                                  const lathe_compile_options* options, lathe_program** program);
/* Compiles a model to a file (.lx) that lathe_load_file takes, without running it here: `target`
 * may be another machine's. */
lathe_error* lathe_compile_to_file(const char* path, const lathe_compile_options* options,
                                   const char* executable);

#ifdef __cplusplus
} /* extern "C" */
#endif
