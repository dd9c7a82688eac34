# find_package(lathe [VERSION] [COMPONENTS runtime compiler]), from a build folder or an installation:
#   runtime   lathe::runtime, and lathe::runtime_static where it was built: run compiled programs,
#             from C and C++; no other library
#   compiler  lathe::lathe, and lathe_add_dialect (lathe-dialect.cmake)
# Without COMPONENTS: all that is installed.
include(CMakeFindDependencyMacro)
include(${CMAKE_CURRENT_LIST_DIR}/lathe-paths.cmake)
find_dependency(Threads)

foreach(_lathe_part IN ITEMS runtime compiler)
  set(_lathe_targets_of_${_lathe_part} ${CMAKE_CURRENT_LIST_DIR}/lathe-${_lathe_part}-targets.cmake)
  if(NOT lathe_FIND_COMPONENTS AND EXISTS ${_lathe_targets_of_${_lathe_part}})
    list(APPEND _lathe_wanted ${_lathe_part})
  endif()
endforeach()
list(APPEND _lathe_wanted ${lathe_FIND_COMPONENTS})

foreach(_lathe_part IN LISTS _lathe_wanted)
  if(EXISTS "${_lathe_targets_of_${_lathe_part}}")
    if(_lathe_part STREQUAL "compiler")
      find_dependency(fmt)
      find_dependency(nlohmann_json)
      include(${CMAKE_CURRENT_LIST_DIR}/lathe-dialect.cmake)
    endif()
    include(${_lathe_targets_of_${_lathe_part}})
    set(lathe_${_lathe_part}_FOUND TRUE)
  elseif(lathe_FIND_REQUIRED_${_lathe_part})
    set(lathe_FOUND FALSE)
    set(lathe_NOT_FOUND_MESSAGE
        "there is no component '${_lathe_part}' here; Lathe has runtime and compiler")
    return()
  endif()
endforeach()

if(lathe_runtime_FOUND AND EXISTS "${LATHE_RUNTIME_ARCHIVE}" AND NOT TARGET lathe::runtime_static)
  add_library(lathe::runtime_static STATIC IMPORTED)
  set_target_properties(lathe::runtime_static PROPERTIES
    IMPORTED_LOCATION ${LATHE_RUNTIME_ARCHIVE}
    INTERFACE_INCLUDE_DIRECTORIES ${LATHE_INCLUDE_DIR}
    INTERFACE_COMPILE_FEATURES "c_std_99;cxx_std_20"
    INTERFACE_LINK_LIBRARIES "Threads::Threads;${CMAKE_DL_LIBS};stdc++;m")
endif()
unset(_lathe_wanted)
