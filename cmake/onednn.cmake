# oneDNN 3 for OpenMP, as the installer's wheel or from elsewhere: DNNL::dnnl and OpenMP::OpenMP_CXX,
# if LATHE_ONEDNN. Its threads are OpenMP's; we have it use one.
set(LATHE_ONEDNN OFF)
if(NOT LATHE_FUZZ)
  find_package(dnnl 3 QUIET CONFIG HINTS ${PROJECT_SOURCE_DIR}/.venv/lib/cmake/dnnl)
  find_package(OpenMP QUIET COMPONENTS CXX)
  if(dnnl_FOUND AND OpenMP_CXX_FOUND AND DNNL_CPU_THREADING_RUNTIME STREQUAL "OMP")
    set(LATHE_ONEDNN ON)
  endif()
endif()
