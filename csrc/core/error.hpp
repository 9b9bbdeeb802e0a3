#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace gdn {

enum class ErrorKind { value, type, unsupported };

// Bad input, found before any launch. Becomes sglang_gdn.errors.{GdnValueError, GdnTypeError, GdnUnsupportedError}.
// The text reads "<op>: <argument> must be <rule>; got <received>".
class ArgumentError : public std::runtime_error {
 public:
  ArgumentError(ErrorKind kind, std::string op, std::string argument, const std::string& message)
      : std::runtime_error(op + ": " + argument + " " + message),
        kind(kind),
        op(std::move(op)),
        argument(std::move(argument)) {}

  ErrorKind kind;
  std::string op;
  std::string argument;
};

// A valid request for which no kernel is built. Becomes sglang_gdn.errors.GdnNoKernelError.
class NoKernelError : public ArgumentError {
 public:
  NoKernelError(std::string op, const std::string& message)
      : ArgumentError(ErrorKind::unsupported, std::move(op), "specialization", message) {}
};

}  // namespace gdn
