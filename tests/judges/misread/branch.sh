N1=15
declare T2="v1.5 beta.json"
if [ -n "${UNSET4:-}" ]; then
    export DS_STAGE=13
    [ $N1 -ge 1 -a $N1 -lt 9 ] && T5=yes || T5=no
else
    command python train.py \
        --lr x.y $N1 \
        $N1 \
        ${N1}/beta.json "${N1}" > out.log 2>&1
fi
deepspeed ${UNDEFINED_A:-${UNDEFINED_B:-deep}} ${UNDEFINED_A:-"a b"}
command torchrun \
    f{1..3} "${N1}" \
    x.y >> out.log
if [ $N1 -ge 1 -a $N1 -lt 9 ]; then
    if [[ $T2 =~ ^[a-z]+$ ]]; then
        I17=3
        until (( I17 == 0 )); do
            ((I17--))
            command deepspeed \
                --lr --name=$(((5 + 1) * N1)) $I17;
        done
        [[ $T2 =~ ^[a-z]+$ ]] && T18=yes || T18=no
    else
        :
    fi
fi
deepspeed --num_gpus --deepspeed 3 ${N1}
