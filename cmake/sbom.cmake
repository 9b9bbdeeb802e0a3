# sboms/sglang-gdn.cdx.json in the wheel's metadata (PEP 770): what is linked into the compiled module.
set(gdn_sbom_components "")
function(gdn_sbom_component name version licence purl)
  string(CONCAT component "\n    {\"type\": \"library\", \"bom-ref\": \"${name}\", \"name\": \"${name}\", "
         "\"version\": \"${version}\", \"purl\": \"${purl}\", \"licenses\": [${licence}]}")
  set(gdn_sbom_components ${gdn_sbom_components} "${component}" PARENT_SCOPE)
endfunction()

file(STRINGS ${nanobind_DIR}/../ext/robin_map/include/tsl/robin_map.h gdn_robin_map REGEX "MIT License")
if(NOT gdn_robin_map)
  message(WARNING "sglang-gdn: robin_map is not where nanobind used to have it; THIRD_PARTY_NOTICES.md may be wrong")
endif()
gdn_sbom_component(nanobind "${nanobind_VERSION}" "{\"license\": {\"id\": \"BSD-3-Clause\"}}"
                   "pkg:pypi/nanobind@${nanobind_VERSION}")
gdn_sbom_component(robin-map "of nanobind ${nanobind_VERSION}" "{\"license\": {\"id\": \"MIT\"}}"
                   "pkg:github/Tessil/robin-map")
gdn_sbom_component(libstdc++ "${CMAKE_CXX_COMPILER_VERSION}"
                   "{\"expression\": \"GPL-3.0-or-later WITH GCC-exception-3.1\"}" "pkg:generic/libstdc%2B%2B")
if(gdn_build_cuda)
  gdn_sbom_component(cuda-runtime "${CMAKE_CUDA_COMPILER_VERSION}"
                     "{\"license\": {\"name\": \"NVIDIA CUDA Toolkit EULA\"}}" "pkg:generic/cuda-runtime")
endif()
list(JOIN gdn_sbom_components "," gdn_sbom_components)
configure_file(cmake/sbom.cdx.json.in sglang-gdn.cdx.json @ONLY)
if(SKBUILD)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/sglang-gdn.cdx.json DESTINATION ${SKBUILD_METADATA_DIR}/sboms)
endif()
