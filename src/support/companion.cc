#include "lathe/support/companion.h"

#include <dlfcn.h>

#include <filesystem>

#include "lathe/support/error.h"

namespace lathe {
namespace {

// The folder of the library that this code is in.
std::filesystem::path OwnFolder() {
  Dl_info info;
  LATHE_CHECK(dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) != 0, "no own library");
  return std::filesystem::path(info.dli_fname).parent_path();
}

}  // namespace

void* FindInCompanion(const char* library, const char* entry, std::string& why) {
  const std::string path = (OwnFolder() / library).string();
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    why = dlerror();
    return nullptr;
  }
  void* found = dlsym(handle, entry);
  LATHE_CHECK(found != nullptr, path, " lacks ", entry);
  return found;
}

}  // namespace lathe
