#!/usr/bin/env bash
# Takes the library into a project of its own, in each of the ways that the README names:
#
#   use.sh find_package|add_subdirectory|fetch_content|pkg_config|copy WORK_DIRECTORY
#
# SOURCE, VERSION, CMAKE, GENERATOR, CXX, EIGEN_DIR, EIGEN_INCLUDE and PKG_CONFIG come from the
# environment.
set -euo pipefail
method=$1
work=$2
consumer="$SOURCE/tests/packaging/consumer"
rm -rf "$work"
mkdir -p "$work"

# An Eigen that some build tree has registered must not be found.
configure() {
  "$CMAKE" -G "$GENERATOR" -DCMAKE_CXX_COMPILER="$CXX" -DEigen3_DIR="$EIGEN_DIR" \
    -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -DCMAKE_FIND_USE_SYSTEM_PACKAGE_REGISTRY=OFF "$@"
}

# Installs to one place and moves it to another: nothing may remember the first.
install_library() {
  configure -S "$SOURCE" -B "$work/library" -DCONTRASTIVE_BUILD_TESTS=OFF \
    -DCONTRASTIVE_BUILD_EXAMPLES=OFF -DCONTRASTIVE_BUILD_BENCH=OFF
  "$CMAKE" --install "$work/library" --prefix "$work/first"
  mv "$work/first" "$work/prefix"
  if grep -rF "$work" "$work/prefix" || grep -rF "$SOURCE" "$work/prefix"; then
    echo "an installed file holds a path of this machine"
    exit 1
  fi
}

compile() {
  "$CXX" -std=c++17 "$@" -c "$consumer/other.cpp" -o "$work/other.o"
}

case $method in
  find_package | add_subdirectory | fetch_content)
    [ "$method" != find_package ] || install_library
    configure -S "$consumer" -B "$work/build" -DMETHOD="$method" -DVERSION="$VERSION" \
      -DCMAKE_PREFIX_PATH="$work/prefix" -DCONTRASTIVE_SOURCE="$SOURCE"
    [ "$method" != fetch_content ] || exit 0 # from here on it is add_subdirectory
    "$CMAKE" --build "$work/build"
    "$work/build/consumer" | grep -F "contrastive $VERSION:"
    ;;
  pkg_config)
    install_library
    PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name contrastive.pc)")${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
    export PKG_CONFIG_PATH
    [ "$("$PKG_CONFIG" --modversion contrastive)" = "$VERSION" ]
    # shellcheck disable=SC2046
    compile $("$PKG_CONFIG" --cflags --libs contrastive)
    ;;
  copy)
    cp -R "$SOURCE/include" "$work/copied"
    compile -I"$work/copied" -I"$EIGEN_INCLUDE"
    ;;
  *)
    echo "unknown method $method"
    exit 1
    ;;
esac
