# LATHE_UNITY: sources are compiled several at once, which takes half the time from nothing and more of
# it after a change.

set(LATHE_UNITY_BYTES 300000)  # of sources compiled as one: twenty seconds
set(LATHE_UNITY_GENERATED 12)  # of generated sources, which have names of their own

# Groups the sources of a target so that those of a group do not define the same names.
function(lathe_unity target)
  if(NOT LATHE_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cc$")
  set(generated ${sources})
  list(FILTER generated INCLUDE REGEX "^${PROJECT_BINARY_DIR}/gen/")
  set(index 0)
  foreach(source IN LISTS generated)
    math(EXPR group "${index} / ${LATHE_UNITY_GENERATED}")
    math(EXPR index "${index} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP generated_${group})
  endforeach()
  list(FILTER sources EXCLUDE REGEX "^${PROJECT_BINARY_DIR}/gen/")
  execute_process(
    COMMAND ${LATHE_PYTHON_EXE} ${PROJECT_SOURCE_DIR}/cmake/unity.py ${LATHE_UNITY_BYTES} ${sources}
    OUTPUT_VARIABLE lines COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" lines "${lines}")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "^([0-9]+) (.*)$" line "${line}")
    set_source_files_properties(${CMAKE_MATCH_2} PROPERTIES UNITY_GROUP ${target}_${CMAKE_MATCH_1})
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # A name that is added may belong to another group.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
               ${sources} ${PROJECT_SOURCE_DIR}/cmake/unity.py)
endfunction()
