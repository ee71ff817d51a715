function first() {
    [ $# -lt 2 ] && return 1
}
srun python ${N1} "${T2}" x.y < /dev/null
function second {
    [ $# -lt 2 ] && return 1
    {
        (
            T6="$(cat <<< x1)"
        )
    }
}
