// Loaded before a program, has CPUID tell of fewer instructions than the processor has: those of
// LESSER_CPU (avx2, avx2_vnni, avx512, avx512_vnni). Linux for x86-64, where the processor lets
// CPUID fault: each CPUID ends in the handler below, which executes it and hides bits.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define BIT(n) ((uint32_t)1 << (n))

// Of leaf 7 (Intel's manual, volume 2, CPUID).
static const uint32_t kAvx512OfB =
    BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31);
static const uint32_t kAvx512OfC = BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14);
static const uint32_t kAvx512VnniOfC = BIT(11);
static const uint32_t kAvx512Fp16AndTilesOfD =
    BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25);
// Of its subleaf 1.
static const uint32_t kAvxVnniOfA = BIT(4);
static const uint32_t kBf16AndIfmaOfA = BIT(5) | BIT(21) | BIT(23);
static const uint32_t kLaterOfD = BIT(4) | BIT(5) | BIT(8) | BIT(10) | BIT(19);

static int has_avx512, has_vnni;

static void Allow(unsigned long allowed) { syscall(SYS_arch_prctl, ARCH_SET_CPUID, allowed); }

static void Hide(uint32_t leaf, uint32_t subleaf, uint32_t* a, uint32_t* b, uint32_t* c,
                 uint32_t* d) {
  if (leaf != 7) return;
  if (subleaf == 0) {
    if (!has_avx512) *b &= ~kAvx512OfB, *c &= ~kAvx512OfC;
    if (!has_vnni) *c &= ~kAvx512VnniOfC;
    *d &= ~kAvx512Fp16AndTilesOfD;
  } else if (subleaf == 1) {
    if (!has_vnni) *a &= ~kAvxVnniOfA;
    *a &= ~kBf16AndIfmaOfA;
    *d &= ~kLaterOfD;
  }
}

static void OnFault(int number, siginfo_t* info, void* context) {
  (void)info;
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  const unsigned char* code = (const unsigned char*)registers[REG_RIP];
  if (code[0] != 0x0f || code[1] != 0xa2) {
    signal(number, SIG_DFL);  // a fault of the program: it happens again
    return;
  }
  const uint32_t leaf = (uint32_t)registers[REG_RAX], subleaf = (uint32_t)registers[REG_RCX];
  uint32_t a = leaf, b = 0, c = subleaf, d = 0;
  Allow(1);
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  Allow(0);
  Hide(leaf, subleaf, &a, &b, &c, &d);
  registers[REG_RAX] = a, registers[REG_RBX] = b, registers[REG_RCX] = c, registers[REG_RDX] = d;
  registers[REG_RIP] += 2;
}

// Before all other libraries, which look at the processor in their own: linked with -z initfirst,
// the C library is not ready for getenv.
__attribute__((constructor)) static void Begin(int argc, char** argv, char** environment) {
  (void)argc, (void)argv;
  static const char kName[] = "LESSER_CPU=";
  const char* wanted = NULL;
  for (; *environment != NULL; ++environment) {
    if (strncmp(*environment, kName, sizeof(kName) - 1) == 0) {
      wanted = *environment + sizeof(kName) - 1;
    }
  }
  if (wanted == NULL) return;
  has_avx512 = strncmp(wanted, "avx512", 6) == 0;
  has_vnni = strstr(wanted, "vnni") != NULL;
  struct sigaction action;
  memset(&action, 0, sizeof(action));
  action.sa_sigaction = OnFault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
  sigaction(SIGSEGV, &action, NULL);
  if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0) != 0) {
    static const char kMessage[] = "lesser_cpu: CPUID cannot be made to fault on this machine\n";
    if (write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1) > 0) _exit(2);
    _exit(3);
  }
}
