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

typedef enum lathe_severity {
  LATHE_NOTE = 1,   /* a part of the model takes longer than it might */
  LATHE_WARNING = 2 /* the file is at fault, or a folder, and was taken otherwise than it says */
} lathe_severity;

/* What somebody may want to know of a compilation that went well. `id` stays the same over
 * versions, as those of errors do; `text` is a sentence. */
typedef void (*lathe_log)(void* user, lathe_severity severity, const char* id, const char* text);
/* So many functions of how many are known of have been compiled. */
typedef void (*lathe_progress)(void* user, size_t done, size_t total);

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
  const char* precision;            /* "strict", "f32", "high", "bf16"; NULL: "f32" */
  lathe_thread_pool* pool;          /* as in lathe_load_options */
  const lathe_allocator* allocator; /* likewise */
  lathe_log log;                    /* called by the thread that compiles; may be NULL */
  lathe_progress progress;          /* called by one thread at a time; may be NULL */
  void* user;                       /* of log and progress */
} lathe_compile_options;

/* An ONNX file (.onnx) or Lathe text (.lathe), for runs in this process. `options` may be NULL.
 * Errors: what is wrong with the file or the model; LATHE_UNSUPPORTED, with the operations, if it
 * has no plan. Operations without machine code are evaluated, slowly. */
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
