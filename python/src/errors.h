#pragma once

namespace lathe::python {

/// From here on, a lathe::Error that leaves a function of the module is raised as the Python
/// exception of its kind (python/lathe/_errors.py), with code, id, location, hint and notes.
void RegisterErrors();

}  // namespace lathe::python
