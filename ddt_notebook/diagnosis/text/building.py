"""Clues of stage A: a package is built, installed and imported."""

from __future__ import annotations

from .clue import Clue

CLUES = (
    Clue(
        "a package could not be built",
        r"""failed building wheel
could not build wheels
failed to build
building wheel for .{0,60}error
command errored out with exit status
failed with error code -?\d+ in
subprocess-exited-with-error
metadata-generation-failed
egg_info.{0,40}error
running setup\.py install for \S+ ?\.\.\. ?error
installationerror
error in [\w-]+ setup command
legacy-install-failure""",
        {"A.1": 4.5},
    ),
    Clue(
        "cmake could not configure or build the package",
        r"""cmake error
configuring incomplete, errors occurred
command '\['cmake'
cmake was unable
cmake must be installed
cmakelists\.txt:\d+""",
        {"A.1": 4.5},
    ),
    Clue(
        "the compiler or the linker failed",
        r"""fatal error: \S+\.(h|hpp|cuh)\b
error: command '?\S*(gcc|g\+\+|cc|nvcc|clang)\S* failed
command '.{0,80}(gcc|g\+\+|nvcc)' (failed|returned)
collect2: error
ld returned 1 exit status
ld: cannot find
cannot find -l\w+
skipping incompatible \S+ when searching
compilation terminated
ninja: build stopped
undefined reference to
nvcc fatal
unsupported gnu version
make(\[\d+\])?: \*\*\*
error: unrecognized command line option
unable to execute '?\S*(gcc|g\+\+|nvcc)
error: expected .{1,30} before
vcvarsall
microsoft visual c\+\+ .{0,20}(is )?required""",
        {"A.1": 4.5},
    ),
    Clue(
        "no version of the package fits",
        r"""could not find a version that satisfies
no matching distribution
resolutionimpossible
unsatisfiableerror
packagesnotfounderror
conflicting dependencies
which is incompatible
is not a supported wheel
requires python""",
        {"A.1": 4.0, "A.2": 0.5},
    ),
    Clue(
        "the setup script of the package stopped",
        r"""pip-(install|build|req-build)-
setup\.py.{0,60}(error|fail|line \d+)
check_tf_version
check_torch_version
was not found \(see error above\)
plugins were built
unable to determine (pytorch|tensorflow|mxnet|cuda) \w+
horovod_(with|without|gpu|nccl|cuda|mpi)_?\w*=\S+ .{0,80}(pip|python|setup)""",
        {"A.1": 3.8},
    ),
    Clue(
        "an extension of DeepSpeed, Colossal-AI or Apex could not be compiled",
        r"""error building extension
unable to jit load
cuda_home (environment variable )?(is not set|does not exist)
missing cuda_home
ds_build_\w+
op_?builder
installed cuda version .{0,40} does not match
cuda version \([\d.]+\) mismatches the version
cuda_ext=1
please install apex""",
        {"A.1": 3.5, "A.2": 0.8, "D.1.8": 0.2},
    ),
    Clue(
        "installing or building the package fails",
        r"""(unable|fail\w*|cannot|can't|could not|how) to (install|build|compile)
(can't|cannot|couldn't|could not|won't|not able to) (be )?(install|build|compile)
(install\w*|build\w*|compil\w*)<60.>(fail|error|problem|issue|stops|not work|does not)
(error|fail\w*|problem\w*|issues?|trouble)<50.>(install|build|compil)
will not install""",
        {"A.1": 2.4},
        kind="complaint",
    ),
    Clue(
        "",
        r"""pip3? install
python setup\.py
conda install
docker build
dockerfile
no-cache-dir
check-build
make -j""",
        {"A.1": 1.3},
        kind="context",
    ),
    Clue(
        "a module is not there for this interpreter",
        r"""modulenotfounderror
no module named""",
        {"A.2": 4.2},
        "module-not-found",
    ),
    Clue(
        "a file of another name is imported instead of the package",
        r"""is not a package""",
        {"A.2": 4.4},
        "module-shadowed",
    ),
    Clue(
        "a name or a library could not be imported",
        r"""importerror
cannot import name
partially initialized module
most likely due to a circular import""",
        {"A.2": 3.8},
        "import-error",
    ),
    Clue(
        "a shared library is missing or of another version than the package was built for",
        r"""cannot open shared object file
undefined symbol
symbol not found
dlopen\(
dll load failed
glibcxx_
glibc_
lib(cudart|nccl|mpi|cublas|cudnn|stdc\+\+)\S*: (version|cannot)
load_op_library
_load_library
versionmismatch
image not found
specified module could not be found""",
        {"A.2": 4.0, "A.1": 0.4},
        "import-error",
    ),
    Clue(
        "the package was built without the extension for this framework",
        r"""extension .{0,30}has not been built
extension .{0,30}not built
mpi_lib(_v2)?\b.{0,60}(not found|no such|error)
horovod\.(torch|tensorflow|keras|mxnet|spark) (is )?not (found|installed|available)""",
        {"A.2": 4.0, "A.1": 1.5},
    ),
    Clue(
        "importing the package fails",
        r"""(error|fail\w*|crash\w*)<40.>\b(import|importing) \w
\bimport(ing)? <package><60>(fail|error|crash)""",
        {"A.2": 2.0},
        kind="complaint",
    ),
    Clue(
        "",
        r"""['`]import \w
from \S+ import
^\s*import \w
(error|fail\w*)<120>in <module>
in <module><160>error""",
        {"A.2": 1.0},
        kind="context",
    ),
)
