# LATHE_PYTHON_EXE: the option LATHE_PYTHON, else the installer's .venv, else python3.
if(LATHE_PYTHON)
  set(LATHE_PYTHON_EXE ${LATHE_PYTHON})
elseif(EXISTS ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  set(LATHE_PYTHON_EXE ${CMAKE_SOURCE_DIR}/.venv/bin/python)
else()
  set(LATHE_PYTHON_EXE python3)
endif()
