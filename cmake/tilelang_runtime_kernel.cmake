# tilelang_register_runtime_kernel(NAME kernel WRAPPER_SRCS sources...)
#
# Adds a kernel: its C++ wrapper and its table of variants to the target gdn_ascend, and the committed device sources that
# generated/manifest.json lists to libsglang_gdn_ascend.so, or to gdn_ascend where it runs on the simulator. A file that
# was edited by hand, or is missing, stops the configuration.
set(GDN_ASCEND_MANIFEST_SCHEMA 1)

function(tilelang_register_runtime_kernel)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "WRAPPER_SRCS")
  foreach(required NAME WRAPPER_SRCS)
    if(NOT arg_${required})
      message(FATAL_ERROR "tilelang_register_runtime_kernel: ${required} must be given; got nothing")
    endif()
  endforeach()
  if(NOT DEFINED GDN_ASCEND_GENERATED)
    set(GDN_ASCEND_GENERATED ${CMAKE_CURRENT_SOURCE_DIR}/generated)
  endif()
  set(regenerate "run `python -m gdn_aot compile-kernels --target ascend --device a2`")
  set(manifest_file ${GDN_ASCEND_GENERATED}/manifest.json)
  if(NOT EXISTS ${manifest_file})
    message(FATAL_ERROR "${arg_NAME}: ${manifest_file} must exist; ${regenerate}")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${manifest_file})
  file(READ ${manifest_file} manifest)
  string(JSON schema GET "${manifest}" schema)
  if(NOT schema EQUAL GDN_ASCEND_MANIFEST_SCHEMA)
    message(FATAL_ERROR "${manifest_file}: schema must be ${GDN_ASCEND_MANIFEST_SCHEMA}; got ${schema}")
  endif()
  string(JSON variants ERROR_VARIABLE missing GET "${manifest}" kernels ${arg_NAME} variants)
  if(missing)
    message(FATAL_ERROR "${arg_NAME}: must be a kernel of ${manifest_file}; ${regenerate} --kernels ${arg_NAME}")
  endif()

  target_sources(gdn_ascend PRIVATE ${arg_WRAPPER_SRCS} ${GDN_ASCEND_GENERATED}/${arg_NAME}_registry.cpp)
  string(JSON count LENGTH "${variants}")
  math(EXPR last "${count} - 1")
  foreach(index RANGE ${last})
    string(JSON variant MEMBER "${variants}" ${index})
    string(JSON file GET "${variants}" ${variant} file)
    string(JSON expected GET "${variants}" ${variant} sha256)
    set(source ${GDN_ASCEND_GENERATED}/${file})
    set(found "no file")
    if(EXISTS ${source})
      file(SHA256 ${source} found)
    endif()
    if(NOT found STREQUAL expected)
      message(FATAL_ERROR "${source}: must have SHA-256 ${expected}; got ${found}: ${regenerate}")
    endif()
    gdn_ascend_device_source(${source})
  endforeach()
endfunction()

# BiSheng's command line is that of TileLang-Ascend, whose wheel also has the headers that the device sources include.
function(gdn_ascend_device_source source)
  if(GDN_ASCEND_SIMULATOR)
    target_sources(gdn_ascend PRIVATE ${source})
    set_source_files_properties(${source} PROPERTIES
      INCLUDE_DIRECTORIES "${GDN_ASCEND_SIMULATOR};${CMAKE_CURRENT_SOURCE_DIR}/device"
      COMPILE_OPTIONS "-w") # lowered code declares what it does not use
    return()
  endif()
  get_filename_component(variant ${source} NAME_WE)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${variant}.o)
  set(cann $ENV{ASCEND_HOME_PATH})
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${GDN_BISHENG} --npu-arch=dav-2201 -O2 -std=c++17 -xasc -fPIC -c ${source} -o ${object}
            -I${PROJECT_SOURCE_DIR}/csrc -I${PROJECT_SOURCE_DIR}/csrc/ascend/device
            -I${cann}/include -I${cann}/include/experiment/runtime -I${cann}/include/experiment/msprof
            -I${cann}/pkg_inc -I${cann}/pkg_inc/runtime -I${cann}/pkg_inc/profiling
            -I${GDN_TILELANG_ROOT}/src -I${GDN_TILELANG_ROOT}/3rdparty/catlass/include
            -I${GDN_TILELANG_ROOT}/3rdparty/shmem/include -I${GDN_TILELANG_ROOT}/3rdparty/shmem/src/device
            -DBACKEND_HYBM -Wno-macro-redefined -Wno-ignored-attributes -Wno-non-c-typedef-for-linkage
    DEPENDS ${source} ${CMAKE_CURRENT_SOURCE_DIR}/device/gdn_ascend_launch.hpp
            ${CMAKE_CURRENT_SOURCE_DIR}/device/gdn_ascend_tile.hpp
    VERBATIM)
  set_property(TARGET gdn_ascend APPEND PROPERTY GDN_DEVICE_OBJECTS ${object})
endfunction()

# libsglang_gdn_ascend.so, beside the Python module, which loads it with the first launch: it needs CANN to be loaded.
function(gdn_ascend_device_library)
  get_target_property(objects gdn_ascend GDN_DEVICE_OBJECTS)
  set(library ${CMAKE_CURRENT_BINARY_DIR}/libsglang_gdn_ascend.so)
  add_custom_command(
    OUTPUT ${library}
    COMMAND ${GDN_BISHENG} --npu-arch=dav-2201 -fPIC --shared ${objects} -o ${library} -L$ENV{ASCEND_HOME_PATH}/lib64
            -lruntime -lascendcl -lm -ltiling_api -lplatform -lc_sec -ldl
    DEPENDS ${objects}
    VERBATIM)
  add_custom_target(sglang_gdn_ascend ALL DEPENDS ${library})
  install(FILES ${library} DESTINATION sglang_gdn)
endfunction()
