# LATHE_PYTHON_EXE: that of the wheel which is being built, else the option LATHE_PYTHON, else the
# installer's .venv, else python3.
if(SKBUILD)
  set(LATHE_PYTHON_EXE ${Python_EXECUTABLE})
elseif(LATHE_PYTHON)
  set(LATHE_PYTHON_EXE ${LATHE_PYTHON})
elseif(EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  set(LATHE_PYTHON_EXE ${PROJECT_SOURCE_DIR}/.venv/bin/python)
else()
  set(LATHE_PYTHON_EXE python3)
endif()

# LATHE_PYTHON_PACKAGE: AUTO becomes ON or OFF. Where everything is under sanitizers it is OFF: the
# interpreter is not. The module alone is tested so (python/CMakeLists.txt).
if(LATHE_PYTHON_PACKAGE STREQUAL "AUTO")
  set(LATHE_PYTHON_PACKAGE OFF)
  execute_process(COMMAND ${LATHE_PYTHON_EXE} -c "import nanobind" RESULT_VARIABLE missing
                  OUTPUT_QUIET ERROR_QUIET)
  if(missing EQUAL 0 AND NOT LATHE_SANITIZE AND NOT LATHE_FUZZ)
    set(LATHE_PYTHON_PACKAGE ON)
  endif()
endif()
