# Warnings, sanitizers and the linker, for every target of the project.

add_library(lathe_flags INTERFACE)
target_compile_options(lathe_flags INTERFACE
  -Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> -Wundef -Wvla
  $<$<COMPILE_LANGUAGE:CXX>:-Wextra-semi> $<$<BOOL:${LATHE_WERROR}>:-Werror>)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # gcc 12 reports std::string concatenation (GCC bug 105651) and moves of std::variant at -O3
  # (GCC bug 80635).
  target_compile_options(lathe_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
  # Functions of a library are its own (as clang has it), so that they are inlined where they are called.
  target_compile_options(lathe_flags INTERFACE -fno-semantic-interposition)
  # Its garbage collector takes a tenth of the time of several sources compiled as one, which need up to
  # a gigabyte. Where processors have less memory each, it collects.
  cmake_host_system_information(RESULT processors QUERY NUMBER_OF_LOGICAL_CORES)
  cmake_host_system_information(RESULT megabytes QUERY TOTAL_PHYSICAL_MEMORY)
  math(EXPR heap "${megabytes} / ${processors} / 4")  # megabytes
  if(heap LESS 256)
    set(heap 256)
  elseif(heap GREATER 1024)
    set(heap 1024)
  endif()
  target_compile_options(lathe_flags INTERFACE --param=ggc-min-heapsize=${heap}000)
endif()

if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # std::stable_sort of libstdc++ 12 uses a function that it deprecates, which clang reports.
  target_compile_options(lathe_flags INTERFACE -Wno-deprecated-declarations)
endif()

if(LATHE_UNITY)
  # What is meant for one source alone: a local name like something of a neighbor, a class with members
  # of a type in an unnamed namespace. Fuzzers, and builds of one source at a time, look for what is
  # shadowed.
  target_compile_options(lathe_flags INTERFACE $<$<NOT:$<BOOL:${LATHE_FUZZ}>>:-Wno-shadow>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()

if(LATHE_SANITIZE)
  target_compile_options(lathe_flags INTERFACE
    -fsanitize=${LATHE_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(lathe_flags INTERFACE -fsanitize=${LATHE_SANITIZE})
  target_compile_definitions(lathe_flags INTERFACE LATHE_SANITIZED)
  if(LATHE_SANITIZE MATCHES "undefined")
    target_compile_options(lathe_flags INTERFACE -fno-sanitize-recover=undefined)
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      # It reads the word before a function, which the code that is made while running lacks.
      target_compile_options(lathe_flags INTERFACE -fno-sanitize=function)
    endif()
  endif()
endif()

find_program(LATHE_MOLD mold)
find_program(LATHE_LLD NAMES ld.lld ld.lld-19)
if(LATHE_MOLD)
  target_link_options(lathe_flags INTERFACE -fuse-ld=mold)
elseif(LATHE_LLD)
  target_link_options(lathe_flags INTERFACE -fuse-ld=lld)
endif()

# For code that runs once per model or command, in release builds: compiles in a third less time.
set(LATHE_COLD_OPTIONS $<$<CONFIG:Release>:-O1>)
