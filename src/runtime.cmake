# liblathe_runtime, shared and static: the layer runtime and what it needs of support.

set(runtime_header ${PROJECT_SOURCE_DIR}/include/lathe/runtime.h)
set(runtime_exports ${CMAKE_CURRENT_SOURCE_DIR}/runtime/exports.map)

add_library(lathe_runtime_library SHARED $<TARGET_OBJECTS:lathe_runtime>)
add_library(lathe::runtime ALIAS lathe_runtime_library)
set_target_properties(lathe_runtime_library PROPERTIES
  OUTPUT_NAME lathe_runtime EXPORT_NAME runtime VERSION ${PROJECT_VERSION} SOVERSION ${LATHE_ABI}
  LINK_DEPENDS ${runtime_exports})
target_include_directories(lathe_runtime_library INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
# The face for C++, lathe/runtime/model.h, is C++20; C programs see C99.
target_compile_features(lathe_runtime_library INTERFACE c_std_99 cxx_std_20)
target_link_libraries(lathe_runtime_library PRIVATE lathe_flags lathe_support_archive
                      Threads::Threads)
target_link_options(lathe_runtime_library PRIVATE
  -Wl,--version-script=${runtime_exports} -Wl,--gc-sections)

# The archive holds one object, in which all but the C interface is local: it meets no symbol of a
# program that links it (but for constants of inline code that gcc marks as unique in a process),
# and needs nothing but the C and C++ libraries.
find_program(LATHE_LD_BFD NAMES ld.bfd)
if(LATHE_LD_BFD AND CMAKE_OBJCOPY AND NOT LATHE_SANITIZE)
  file(READ ${runtime_header} declarations)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${runtime_header})
  string(REGEX MATCHALL "lathe_[a-z0-9_]+\\(" functions "${declarations}")
  list(REMOVE_DUPLICATES functions)
  list(TRANSFORM functions REPLACE "^(.*)\\($" "--undefined=\\1")
  set(object ${CMAKE_CURRENT_BINARY_DIR}/lathe_runtime.o)
  set(archive ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/liblathe_runtime.a)
  add_custom_command(
    OUTPUT ${archive}
    COMMAND ${LATHE_LD_BFD} -r --gc-sections --force-group-allocation ${functions} -o ${object}
            $<TARGET_OBJECTS:lathe_runtime> $<TARGET_FILE:lathe_support_archive>
    COMMAND ${CMAKE_OBJCOPY} --wildcard "--keep-global-symbol=lathe_*" ${object}
    COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
    COMMAND ${CMAKE_AR} rcsD ${archive} ${object}
    DEPENDS lathe_support_archive $<TARGET_OBJECTS:lathe_runtime>
    COMMENT "Linking static runtime ${archive}"
    COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(lathe_runtime_archive ALL DEPENDS ${archive})
  add_library(lathe_runtime_static STATIC IMPORTED GLOBAL)
  add_library(lathe::runtime_static ALIAS lathe_runtime_static)
  add_dependencies(lathe_runtime_static lathe_runtime_archive)
  set_target_properties(lathe_runtime_static PROPERTIES IMPORTED_LOCATION ${archive})
  target_include_directories(lathe_runtime_static INTERFACE ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(lathe_runtime_static INTERFACE
    Threads::Threads ${CMAKE_DL_LIBS} stdc++ m)
  target_compile_features(lathe_runtime_static INTERFACE c_std_99 cxx_std_20)
endif()
