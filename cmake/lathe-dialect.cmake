# lathe_add_dialect(TARGET YAML file... SOURCES file...): a plug-in, lib<TARGET>.so, with the ops that
# the YAML files declare (share/lathe/opgen/README.md) and what the sources say of them. The
# generated headers are "lathe/dialect/<dialect>/<family>.h", <family> being the name of a file.
# Needs Python with PyYAML: that of LATHE_PYTHON, else the first one found.
function(lathe_add_dialect target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "YAML;SOURCES")
  if(NOT arg_YAML OR NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "lathe_add_dialect takes TARGET YAML file... SOURCES file...")
  endif()
  if(LATHE_PYTHON)
    set(python ${LATHE_PYTHON})
  else()
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    set(python ${Python3_EXECUTABLE})
  endif()
  set(gen ${CMAKE_CURRENT_BINARY_DIR}/${target}_gen)
  set(generated "")
  set(headers "")
  foreach(file IN LISTS arg_YAML)
    cmake_path(ABSOLUTE_PATH file)
    list(APPEND files ${file})
    file(STRINGS ${file} dialect REGEX "^dialect: *[a-z][a-z0-9_]* *$")
    string(REGEX REPLACE "^dialect: *([a-z0-9_]*) *$" "\\1" dialect "${dialect}")
    if(NOT dialect)
      message(FATAL_ERROR "${file}: a line 'dialect: NAME' is missing")
    endif()
    cmake_path(GET file STEM family)
    list(APPEND headers ${gen}/lathe/dialect/${dialect}/op_names.h)
    foreach(stem IN ITEMS ${family} ${dialect}_ops)
      list(APPEND generated ${gen}/lathe/dialect/${dialect}/${stem}.cc)
      list(APPEND headers ${gen}/lathe/dialect/${dialect}/${stem}.h)
    endforeach()
  endforeach()
  list(REMOVE_DUPLICATES generated)
  list(REMOVE_DUPLICATES headers)
  add_custom_command(
    OUTPUT ${generated} ${headers}
    COMMAND ${python} ${LATHE_OPGEN} --out ${gen} ${files}
    DEPENDS ${files} ${LATHE_OPGEN}
    COMMENT "Generating the ops of ${target}" VERBATIM)
  add_library(${target} MODULE ${arg_SOURCES} ${generated} ${headers})
  target_include_directories(${target} PRIVATE ${gen})
  target_link_libraries(${target} PRIVATE lathe::lathe)
endfunction()
