#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lathe {

// How many calls of fork() lie between the start of the program and this process.
[[nodiscard]] uint32_t ForkCount();

// A T with threads of its own, made from `argument`. A forked child has a copy of its memory, but
// none of its threads: there, the first use makes another one. The copy is never destroyed, since
// its destructor would wait for threads that do not exist. Thread-safe.
template <class T>
class PerProcess {
 public:
  explicit PerProcess(int argument) : argument_(argument), held_(new Held(argument)) {}
  PerProcess(const PerProcess&) = delete;
  PerProcess& operator=(const PerProcess&) = delete;
  ~PerProcess() {
    Held* held = held_.load(std::memory_order_acquire);
    if (held->forks == ForkCount()) delete held;
  }

  T& operator*() {
    Held* held = held_.load(std::memory_order_acquire);
    return held->forks == ForkCount() ? held->value : Renew(held);
  }
  T* operator->() { return &**this; }

 private:
  struct Held {
    explicit Held(int argument) : forks(ForkCount()), value(argument) {}
    const uint32_t forks;
    T value;
  };

  T& Renew(Held* inherited) {
    auto* made = new Held(argument_);
    if (held_.compare_exchange_strong(inherited, made, std::memory_order_acq_rel)) {
      return made->value;
    }
    delete made;  // another thread was first
    return inherited->value;
  }

  const int argument_;
  std::atomic<Held*> held_;
};

// Threads that all run the same function; fewer than asked for if the system gives no more.
class Workers {
 public:
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

  Workers() = default;
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // Starts up to `count` threads that run T::Work of `owner`, which must not throw.
  template <class T>
  void Start(int count, T* owner, Create create = &pthread_create) noexcept {
    const auto work = [](void* self) -> void* {
      static_cast<T*>(self)->Work();
      return nullptr;
    };
    StartThreads(count, work, owner, create);
  }
  [[nodiscard]] size_t size() const { return threads_.size(); }
  // Waits until all have returned. To be called before this is destroyed, unless it is a copy in a
  // forked child.
  void Join();

 private:
  void StartThreads(int count, void* (*work)(void*), void* owner, Create create) noexcept;

  std::vector<pthread_t> threads_;
};

}  // namespace lathe
