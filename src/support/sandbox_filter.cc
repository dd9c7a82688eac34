#include "src/support/sandbox_filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>

#include "lathe/support/error.h"

namespace lathe {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr uint32_t kArchitecture = 0;  // no filter is written for it
#endif

[[noreturn]] void FailUnsupported(std::string_view what) {
  throw Error(ErrorCode::kUnsupported, "sandbox/unsupported",
              StrCat("this system cannot confine a process: ", what))
      .Hint("it takes Linux 5.13 with seccomp and Landlock; containers may forbid them");
}

std::string Reason() { return std::generic_category().message(errno); }

// ---- Landlock: which files may be opened --------------------------------------------------------

// As linux/landlock.h has them, which older systems lack.
constexpr long kCreateRuleset = 444, kAddRule = 445, kRestrictSelf = 446;
constexpr uint64_t kReadFile = 1 << 2;
struct Ruleset {
  uint64_t handled_access_fs;
};
struct __attribute__((packed)) PathRule {
  uint64_t allowed_access;
  int32_t parent_fd;
};

int LandlockVersion() { return static_cast<int>(syscall(kCreateRuleset, nullptr, 0, 1)); }

// All that a version of Landlock can forbid of files: each has added to those before it.
uint64_t AccessOf(int version) {
  if (version >= 5) return (1 << 16) - 1;
  if (version >= 3) return (1 << 15) - 1;
  return version == 2 ? (1 << 14) - 1 : (1 << 13) - 1;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

// ---- seccomp: which system calls there are ------------------------------------------------------

constexpr uint32_t kAllow = SECCOMP_RET_ALLOW;
constexpr uint32_t kEnd = SECCOMP_RET_KILL_PROCESS;
// What is neither allowed nor an attack, such as a library that looks what there is.
constexpr uint32_t kRefuse = SECCOMP_RET_ERRNO | ENOSYS;

constexpr long kAllowed[] = {
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_lseek,
    SYS_close,
    SYS_fstat,
    SYS_newfstatat,
    SYS_readlinkat,
    SYS_faccessat,
    SYS_getcwd,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_mprotect,
    SYS_madvise,
    SYS_brk,
    SYS_futex,
    SYS_set_robust_list,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_getpid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_getrandom,
    SYS_exit,
    SYS_exit_group,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_getrusage,
    SYS_sysinfo,
    SYS_uname,
    SYS_ppoll,
    SYS_getitimer,
    SYS_setitimer,
    SYS_membarrier,
#if defined(SYS_rseq)
    SYS_rseq,
#endif
#if defined(SYS_statx)
    SYS_statx,
#endif
#if defined(SYS_faccessat2)
    SYS_faccessat2,
#endif
#if defined(__x86_64__)
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_poll,
    SYS_time,
    SYS_arch_prctl,
#endif
};

// What only somebody else's code would do.
constexpr long kForbidden[] = {
    SYS_socket,
    SYS_socketpair,
    SYS_connect,
    SYS_bind,
    SYS_listen,
    SYS_accept,
    SYS_accept4,
    SYS_sendto,
    SYS_sendmsg,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_execve,
    SYS_execveat,
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_kill,
    SYS_tkill,
    SYS_unlinkat,
    SYS_mkdirat,
    SYS_renameat2,
    SYS_linkat,
    SYS_symlinkat,
    SYS_mknodat,
    SYS_fchmodat,
    SYS_fchownat,
    SYS_truncate,
    SYS_mount,
    SYS_umount2,
    SYS_chroot,
    SYS_pivot_root,
    SYS_unshare,
    SYS_setns,
    SYS_bpf,
    SYS_perf_event_open,
    SYS_add_key,
    SYS_keyctl,
    SYS_request_key,
    SYS_memfd_create,
    SYS_init_module,
    SYS_kexec_load,
    SYS_reboot,
    SYS_setuid,
    SYS_setgid,
    SYS_setresuid,
    SYS_io_setup,
#if defined(SYS_io_uring_setup)
    SYS_io_uring_setup,
#endif
#if defined(SYS_userfaultfd)
    SYS_userfaultfd,
#endif
#if defined(__x86_64__)
    SYS_fork,
    SYS_vfork,
    SYS_creat,
    SYS_unlink,
    SYS_rename,
    SYS_mkdir,
    SYS_rmdir,
    SYS_link,
    SYS_symlink,
    SYS_chmod,
    SYS_chown,
    SYS_mknod,
#endif
};

constexpr uint32_t kWrites =
    O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY);

class Filter {
 public:
  Filter() {
    Load(offsetof(seccomp_data, arch));
    UnlessEqual(kArchitecture, kEnd);
    LoadNumber();
#if defined(__x86_64__)
    constexpr uint32_t kX32 = 0x40000000;  // the same calls under other numbers
    Jump(BPF_JGE, kX32, 0, 1);
    Give(kEnd);
#endif
  }
  void On(long call, uint32_t verdict) {
    Jump(BPF_JEQ, static_cast<uint32_t>(call), 0, 1);
    Give(verdict);
  }
  // `with` if the low half of an argument has one of these bits, else `without`.
  void OnBits(long call, int argument, uint32_t bits, uint32_t with, uint32_t without) {
    Jump(BPF_JEQ, static_cast<uint32_t>(call), 0, 4);
    LoadArgument(argument);
    Jump(BPF_JSET, bits, 0, 1);
    Give(with);
    Give(without);
  }
  void OnValue(long call, int argument, uint32_t value, uint32_t equal, uint32_t other) {
    Jump(BPF_JEQ, static_cast<uint32_t>(call), 0, 4);
    LoadArgument(argument);
    Jump(BPF_JEQ, value, 0, 1);
    Give(equal);
    Give(other);
  }
  void Install() {
    Give(kRefuse);
    const sock_fprog program = {static_cast<unsigned short>(code_.size()), code_.data()};
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      FailUnsupported(StrCat("seccomp: ", Reason()));
    }
  }

 private:
  void Load(size_t offset) {
    code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
  }
  void LoadNumber() { Load(offsetof(seccomp_data, nr)); }
  void LoadArgument(int i) {
    Load(offsetof(seccomp_data, args) + static_cast<size_t>(i) * sizeof(uint64_t));
  }
  void Jump(uint16_t how, uint32_t value, uint8_t yes, uint8_t no) {
    code_.push_back(BPF_JUMP(static_cast<uint16_t>(BPF_JMP | how | BPF_K), value, yes, no));
  }
  void Give(uint32_t verdict) { code_.push_back(BPF_STMT(BPF_RET | BPF_K, verdict)); }
  void UnlessEqual(uint32_t value, uint32_t verdict) {
    Jump(BPF_JEQ, value, 1, 0);
    Give(verdict);
  }

  std::vector<sock_filter> code_;
};

}  // namespace

std::string WhyNoSandbox() {
  if (kArchitecture == 0) return "there is no filter for this processor's system calls";
  if (LandlockVersion() < 1) return StrCat("Landlock: ", Reason());
  if (prctl(PR_GET_SECCOMP) < 0) return StrCat("seccomp: ", Reason());
  return {};
}

void AllowReadingOnly(const std::vector<std::string>& files) {
  const Ruleset rules = {AccessOf(LandlockVersion())};
  const Descriptor ruleset(static_cast<int>(syscall(kCreateRuleset, &rules, sizeof rules, 0)));
  if (ruleset.get() < 0) FailUnsupported(StrCat("Landlock: ", Reason()));
  for (const std::string& file : files) {
    const Descriptor at(open(file.c_str(), O_PATH | O_CLOEXEC));
    if (at.get() < 0) continue;  // who wants it hears that it is not there
    const PathRule rule = {kReadFile, at.get()};
    constexpr int kPathBeneath = 1;
    if (syscall(kAddRule, ruleset.get(), kPathBeneath, &rule, 0) != 0) {
      FailUnsupported(StrCat("Landlock: ", Reason()));
    }
  }
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      syscall(kRestrictSelf, ruleset.get(), 0) != 0) {
    FailUnsupported(StrCat("Landlock: ", Reason()));
  }
}

void AllowComputingOnly() {
  Filter filter;
  for (const long call : kAllowed) filter.On(call, kAllow);
  for (const long call : kForbidden) filter.On(call, kEnd);
  filter.OnBits(SYS_openat, 2, kWrites, kEnd, kAllow);
#if defined(SYS_open)
  filter.OnBits(SYS_open, 1, kWrites, kEnd, kAllow);
#endif
  filter.OnBits(SYS_clone, 0, CLONE_THREAD, kAllow,
                kEnd);                                    // clone3 is refused: libraries fall back
  filter.OnValue(SYS_ioctl, 1, TCGETS, kAllow, kRefuse);  // isatty
  filter.OnValue(SYS_prlimit64, 0, 0, kAllow, kEnd);      // its own
  filter.OnValue(SYS_tgkill, 0, static_cast<uint32_t>(getpid()), kAllow, kEnd);  // abort
  filter.OnValue(SYS_fcntl, 1, F_GETFL, kAllow, kRefuse);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) FailUnsupported(Reason());
  filter.Install();
}

}  // namespace lathe
