# MPI for training on several processes: MPI::MPI_C, if LATHE_MPI.
set(LATHE_MPI OFF)
if(NOT LATHE_FUZZ)
  find_package(MPI QUIET COMPONENTS C)
  set(LATHE_MPI ${MPI_C_FOUND})
endif()
