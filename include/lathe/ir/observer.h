#pragma once

namespace lathe {

class Operation;

/// Is told of every operation that this thread frees while the observer lives. For algorithms that
/// keep operations across code of others, who may erase any of them. Observers nest like scopes.
class DestructionObserver {
 public:
  DestructionObserver();
  virtual ~DestructionObserver();
  DestructionObserver(const DestructionObserver&) = delete;
  DestructionObserver& operator=(const DestructionObserver&) = delete;
  /// `op` is unlinked and still readable.
  virtual void Destroying(Operation* op) = 0;
  /// Tells the observers of this thread.
  static void Tell(Operation* op);

 private:
  DestructionObserver* outer_;
};

}  // namespace lathe
