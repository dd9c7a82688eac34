# find_package(lathe): the target lathe::lathe. Works from a build folder and from an installation.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(fmt)
find_dependency(nlohmann_json)
include(${CMAKE_CURRENT_LIST_DIR}/lathe-targets.cmake)
