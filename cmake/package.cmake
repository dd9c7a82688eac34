# What find_package(lathe) and pkg-config need, in the build folder and in an installation; packages.
# Install components: `runtime` runs compiled programs, with `functions` also those that have
# operations without machine code; `compiler` is the rest.

include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lathe)
set(opgen_dir ${PROJECT_SOURCE_DIR}/tools/opgen)
set(runtime_archive "")
if(TARGET lathe_runtime_static)
  set(runtime_archive ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/liblathe_runtime.a)
endif()

export(TARGETS lathe_runtime_library NAMESPACE lathe::
       FILE ${PROJECT_BINARY_DIR}/lathe-runtime-targets.cmake)
export(TARGETS lathe NAMESPACE lathe:: FILE ${PROJECT_BINARY_DIR}/lathe-compiler-targets.cmake)
configure_file(cmake/lathe-config.cmake ${PROJECT_BINARY_DIR}/lathe-config.cmake COPYONLY)
configure_file(cmake/lathe-dialect.cmake ${PROJECT_BINARY_DIR}/lathe-dialect.cmake COPYONLY)
# Before 1.0 a minor version may break what its predecessor had.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lathe-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
# In a build folder the parts are elsewhere than in an installation.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/lathe-paths.cmake CONTENT
     "set(LATHE_OPGEN \"@opgen_dir@/opgen.py\")
set(LATHE_RUNTIME_ARCHIVE \"@runtime_archive@\")
set(LATHE_INCLUDE_DIR \"@PROJECT_SOURCE_DIR@/include\")
" @ONLY)

if(NOT LATHE_INSTALL)
  return()
endif()

install(TARGETS lathe_runtime_library EXPORT lathe_runtime
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT runtime
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(runtime_archive)
  install(FILES ${runtime_archive} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime)
endif()
install(EXPORT lathe_runtime NAMESPACE lathe:: FILE lathe-runtime-targets.cmake
        DESTINATION ${package_dir} COMPONENT runtime)
install(TARGETS lathe_functions_library
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT functions)
foreach(header IN ITEMS runtime.h version.h runtime/model.h)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES include/lathe/${header} COMPONENT runtime
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lathe/${folder})
endforeach()

install(TARGETS lathe EXPORT lathe_compiler
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT compiler NAMELINK_COMPONENT compiler
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT lathe_compiler NAMESPACE lathe:: FILE lathe-compiler-targets.cmake
        DESTINATION ${package_dir} COMPONENT compiler)
if(TARGET lathe_command)
  install(TARGETS lathe_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT compiler)
  # Manual pages and completion come from the command's own tables of options.
  configure_file(cmake/install-help.cmake.in ${PROJECT_BINARY_DIR}/install/help.cmake.in @ONLY)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/install/help.cmake
       INPUT ${PROJECT_BINARY_DIR}/install/help.cmake.in)
  install(SCRIPT ${PROJECT_BINARY_DIR}/install/help.cmake COMPONENT compiler)
endif()
if(TARGET lathe_codegen_llvm)
  install(TARGETS lathe_codegen_llvm
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT compiler)
endif()
if(TARGET lathe_onednn)  # finds oneDNN where it was when Lathe was built: not for packages
  install(TARGETS lathe_onednn LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT onednn)
endif()
if(TARGET lathe_mpi)  # needs the MPI that Lathe was built with: not for packages
  install(TARGETS lathe_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT mpi)
endif()
install(DIRECTORY include/lathe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT compiler
        REGEX "lathe/(version|runtime)[.]h$" EXCLUDE
        REGEX "lathe/runtime/model[.]h$" EXCLUDE)
# Of the op families in use: the folder may hold headers of others that were renamed since.
foreach(source IN LISTS LATHE_GENERATED_SOURCES)
  cmake_path(REPLACE_EXTENSION source h OUTPUT_VARIABLE header)
  cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${PROJECT_BINARY_DIR}/gen OUTPUT_VARIABLE place)
  cmake_path(GET place PARENT_PATH place)
  set(headers ${header})
  if(header MATCHES "_ops[.]h$")  # one per dialect, as the names of its ops are
    cmake_path(REPLACE_FILENAME header op_names.h)
    list(APPEND headers ${header})
  endif()
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${place} COMPONENT compiler)
endforeach()
install(DIRECTORY ${opgen_dir} DESTINATION ${CMAKE_INSTALL_DATADIR}/lathe COMPONENT compiler
        FILES_MATCHING PATTERN "*.py" PATTERN "*.json" PATTERN "README.md"
        PATTERN __pycache__ EXCLUDE)
install(FILES cmake/lathe-dialect.cmake DESTINATION ${package_dir} COMPONENT compiler)

install(FILES cmake/lathe-config.cmake ${PROJECT_BINARY_DIR}/lathe-config-version.cmake
        DESTINATION ${package_dir} COMPONENT runtime)
# Relative paths: an installation can be moved.
set(root /prefix)  # any
foreach(part IN ITEMS LIBDIR INCLUDEDIR DATADIR)
  cmake_path(SET to NORMALIZE "${root}/${CMAKE_INSTALL_${part}}")
  cmake_path(RELATIVE_PATH to BASE_DIRECTORY ${root}/${package_dir}
             OUTPUT_VARIABLE cmake_to_${part})
endforeach()
cmake_path(SET to "${root}")
cmake_path(RELATIVE_PATH to BASE_DIRECTORY ${root}/${CMAKE_INSTALL_LIBDIR}/pkgconfig
           OUTPUT_VARIABLE pkgconfig_to_prefix)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/install/lathe-paths.cmake CONTENT
     "set(LATHE_OPGEN \"\${CMAKE_CURRENT_LIST_DIR}/@cmake_to_DATADIR@/lathe/opgen/opgen.py\")
set(LATHE_RUNTIME_ARCHIVE \"\${CMAKE_CURRENT_LIST_DIR}/@cmake_to_LIBDIR@/liblathe_runtime.a\")
set(LATHE_INCLUDE_DIR \"\${CMAKE_CURRENT_LIST_DIR}/@cmake_to_INCLUDEDIR@\")
" @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/install/lathe-paths.cmake
        DESTINATION ${package_dir} COMPONENT runtime)
foreach(name IN ITEMS lathe lathe-runtime)
  configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/lathe-runtime.pc COMPONENT runtime
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${PROJECT_BINARY_DIR}/lathe.pc COMPONENT compiler
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# cpack -G DEB makes lathe-runtime and lathe; cpack -G TGZ archives.
set(CPACK_PACKAGE_VENDOR "The Lathe authors")
set(CPACK_PACKAGE_CONTACT "The Lathe authors <lathe@localhost>")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_COMPONENTS_ALL runtime functions compiler)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME lathe-runtime)
set(CPACK_DEBIAN_FUNCTIONS_PACKAGE_NAME lathe-functions)
set(CPACK_DEBIAN_COMPILER_PACKAGE_NAME lathe)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "Runs programs that Lathe has compiled, from C and C++")
set(CPACK_COMPONENT_FUNCTIONS_DESCRIPTION
    "What programs of Lathe compute without machine code: strings, lists, random numbers")
set(CPACK_COMPONENT_FUNCTIONS_DEPENDS runtime)
set(CPACK_COMPONENT_COMPILER_DESCRIPTION "A deep-learning graph compiler: command, library, headers")
set(CPACK_COMPONENT_COMPILER_DEPENDS runtime)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS lathe-functions)
set(CPACK_DEBIAN_COMPILER_PACKAGE_RECOMMENDS "libfmt-dev, nlohmann-json3-dev, python3-yaml")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
include(CPack)
