# MPI for training on several processes: MPI::MPI_C, if LATHE_MPI. Not where sanitizers would look
# into MPI, too.
set(LATHE_MPI OFF)
if(NOT LATHE_FUZZ AND NOT LATHE_SANITIZE)
  find_package(MPI QUIET COMPONENTS C)
  set(LATHE_MPI ${MPI_C_FOUND})
endif()
