# lathe_embed(TARGET FILE...): a file below the project becomes a string literal of the sources of the
# target, by `#include "<path from the root>.inc"`.

function(lathe_embed target)
  set(folder ${PROJECT_BINARY_DIR}/embedded)
  foreach(file IN LISTS ARGN)
    file(REAL_PATH ${file} file)
    file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${file})
    file(READ ${file} text)
    file(WRITE ${folder}/${path}.new "R\"file(${text})file\"\n")
    file(COPY_FILE ${folder}/${path}.new ${folder}/${path}.inc ONLY_IF_DIFFERENT)
    file(REMOVE ${folder}/${path}.new)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  target_include_directories(${target} PRIVATE ${folder})
endfunction()
